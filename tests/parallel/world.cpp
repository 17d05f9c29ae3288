#include "parallel/world.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>

#include "base/check.h"
#include "base/rng.h"
#include "config/print.h"
#include "models/config.h"
#include "session/init.h"

namespace tessera::test {

int usual_steps() {
  const char* given = std::getenv("TESSERA_STEPS");
  return given ? std::atoi(given) : 8;
}

config::Config tiny(const std::string& family, const std::string& dtype) {
  config::Config c;
  models::ModelConfig m;
  m.family = family;
  m.classes = 7;
  m.channels = 3;
  m.head_init = "normal";
  if (family == "vit") {
    m.image_h = 12;
    m.image_w = 8;
    m.patch = 4;  // 7 tokens
    m.dim = 24;
    m.depth = 2;
    m.heads = 4;
    m.mlp = 32;
  } else if (family == "swin") {
    m.image_h = m.image_w = 20;
    m.patch = 2;
    m.dim = 8;
    m.depths = {2, 2};
    m.stage_heads = {2, 4};
    m.window_h = m.window_w = 4;
    m.mlp_ratio = 2;
  } else {
    m.image_h = m.image_w = 10;
    m.block = "basic";
    m.layers = {1, 1};
    m.width = 8;
    m.stem = "cifar";
    m.batch_norm = "sync";
  }
  c.model = m;
  c.precision.dtype = dtype;
  c.batch = {8, 8, 1};
  c.optim.lr = 1e-2;
  c.optim.clip = 1.0;
  c.optim.weight_decay = 0.05;
  c.run.threads = 1;
  c.run.seed = 3;
  if (const char* device = std::getenv("TESSERA_TEST_DEVICE")) c.run.device = device;
  if (const char* comm = std::getenv("TESSERA_TEST_COMM")) c.parallel.comm = comm;
  c.parallel.persist = 100;
  return c;
}

config::Config with_layout(config::Config c, const std::string& layout) {
  std::istringstream words(layout);
  for (std::string word; words >> word;) {
    if (word.starts_with("compress=")) {
      c.parallel.compress = word.substr(9);
      continue;
    }
    if (word == "gpipe" || word == "1f1b" || word == "zb") {
      c.parallel.schedule = word;
      continue;
    }
    const auto digits = word.find_first_of("0123456789");
    const std::string key = word.substr(0, digits);
    const std::int64_t n = digits == std::string::npos ? 0 : std::stoll(word.substr(digits));
    if (key == "dp") {
      c.parallel.dp = n;
    } else if (key == "tp") {
      c.parallel.tp = n;
    } else if (key == "sp") {
      c.parallel.sp = n;
      c.parallel.sequence = "ulysses";
    } else if (key == "zero") {
      c.parallel.zero = n;
    } else if (key == "acc") {
      c.batch.accumulate = n;
    } else if (key == "pp") {
      c.parallel.pp = n;
      c.parallel.stages = {{}, "flops"};
    } else if (key == "segments") {
      c.parallel.segments = n;
      c.parallel.stages = {{}, "flops"};
    } else if (key == "interleaved") {
      c.parallel.schedule = "interleaved";
      c.parallel.chunks = n;
    } else if (key == "every") {
      c.parallel.recompute = "every=" + std::to_string(n);
    } else if (key == "megatron") {
      c.parallel.sequence = "megatron";
    } else if (key == "recompute") {
      c.parallel.recompute = "full";
    } else {
      CHECK(false, "no such layout word: " + word);
    }
  }
  return c;
}

int ranks_of(const config::Config& c) {
  return static_cast<int>(c.parallel.pp * c.parallel.dp * c.parallel.sp * c.parallel.tp);
}

namespace {

Samples draw_samples(const models::ModelConfig& m, int step, std::int64_t count) {
  const Key key = Key{99}.with(static_cast<std::uint64_t>(step));
  Samples out{
      std::vector<float>(static_cast<std::size_t>(count * m.image_h * m.image_w * m.channels)),
      std::vector<std::int32_t>(static_cast<std::size_t>(count))};
  for (std::size_t i = 0; i < out.images.size(); ++i)
    out.images[i] = static_cast<float>(normal(key, i));
  for (std::size_t i = 0; i < out.labels.size(); ++i)
    out.labels[i] = static_cast<std::int32_t>(random_bits(key.with("label"), i) %
                                              static_cast<std::uint64_t>(m.classes));
  return out;
}

}  // namespace

// Every rank of every layout asks for the same ones: they are drawn once.
Samples samples_of(const models::ModelConfig& m, int step, std::int64_t count) {
  static std::mutex mutex;
  static std::map<std::vector<std::int64_t>, Samples> known;
  const std::lock_guard lock(mutex);
  const auto [it, is_new] =
      known.try_emplace({m.image_h, m.image_w, m.channels, m.classes, step, count});
  if (is_new) it->second = draw_samples(m, step, count);
  return it->second;
}

Trace train_as(const Training& t, comm::Comm* world) {
  run::Session session(t.config, {}, world);
  const run::ParamSource initial =
      run::initial_weights(static_cast<std::uint64_t>(t.config.run.seed));
  session.load([&](const models::Param& param) {
    std::vector<double> values = initial(param);
    if (t.start) t.start(param, values);
    return values;
  });
  const models::ModelConfig& m = t.config.model;
  Trace out;
  for (int step = 1; step <= t.steps; ++step) {
    const std::int64_t all = t.batch > 0 ? t.batch : t.config.batch.global,
                       n = step == t.steps && t.ragged > 0 ? t.ragged : all;
    const auto [images, labels] = samples_of(m, step, n);
    std::vector<float> targets, weights;
    if (t.soft) {
      targets.assign(static_cast<std::size_t>(n * m.classes), 0.0f);
      for (std::size_t i = 0; i < labels.size(); ++i) {
        targets[i * static_cast<std::size_t>(m.classes) + static_cast<std::size_t>(labels[i])] =
            0.7f;
        targets[i * static_cast<std::size_t>(m.classes) +
                (i % static_cast<std::size_t>(m.classes))] += 0.3f;
      }
    }
    if (t.weighted)
      for (std::size_t i = 0; i < labels.size(); ++i)
        weights.push_back(0.5f + static_cast<float>(labels[i]));
    std::vector<std::uint8_t> pixels;
    if (t.pixels)
      for (const float image : images)
        pixels.push_back(static_cast<std::uint8_t>(128 + 20 * image));
    const run::Images fed = t.pixels ? run::Images(pixels) : run::Images(images);
    const comm::Traffic before = session.traffic();
    const run::StepResult r = session.train_step(
        {fed, labels, t.config.optim.lr, step, 1000 + 10 * step, targets, weights});
    CHECK(r.ok, "a step of a tiny training is finite");
    out.loss.push_back(r.loss);
    out.correct.push_back(r.correct);
    out.grad_norm.push_back(r.grad_norm);
    out.per_step = session.traffic();
    for (std::size_t i = 0; i < out.per_step.rows.size(); ++i) {
      out.per_step.rows[i].count -= before.rows[i].count;
      out.per_step.rows[i].bytes -= before.rows[i].bytes;
    }
  }
  out.weights = session.parameters(run::Weights::live);
  if (session.averages())
    for (auto& [name, values] : session.parameters(run::Weights::average))
      out.weights["ema." + name] = std::move(values);
  if (t.at_end) t.at_end(session, out);
  return out;
}

const run::Compiled& compiled_step(run::Session& session, std::int64_t samples) {
  return session.compiled({run::Goal::train, samples, run::Weights::live, run::ImageForm::numbers});
}

Trace train(const Training& t) {
  if (ranks_of(t.config) == 1) return train_as(t, nullptr);
  Trace out;
  comm::run_local(ranks_of(t.config), [&](comm::Comm& world) {
    Trace mine = train_as(t, &world);
    if (world.rank() == 0) out = std::move(mine);
  });
  return out;
}

const Trace& on_one_rank(const Training& given) {
  CHECK(!given.at_end && !given.start, "who looks on wants a training of their own");
  Training t = given;
  t.config.parallel = {};
  static std::map<std::string, Trace> known;
  const std::string key = config::to_toml(t.config) + std::to_string(t.steps) + " " +
                          std::to_string(t.batch) + " " + std::to_string(t.ragged) +
                          (t.soft ? " soft" : "") + (t.weighted ? " weighted" : "");
  const auto [it, is_new] = known.try_emplace(key);
  if (is_new) it->second = train(t);
  return it->second;
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  CHECK(a.size() == b.size(), "traces of one length");
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]) / std::max(1e-12, std::abs(b[i]));
    most = std::isnan(d) ? 1e9 : std::max(most, d);
  }
  return most;
}

double weight_difference(const Trace& a, const Trace& b) {
  CHECK(a.weights.size() == b.weights.size(), "models of one kind");
  double most = 0;
  for (const auto& [name, want] : b.weights) {
    double d = 0, n = 0;
    const std::vector<double>& got = a.weights.at(name);
    for (std::size_t i = 0; i < want.size(); ++i) {
      d += (got[i] - want[i]) * (got[i] - want[i]);
      n += want[i] * want[i];
    }
    most = std::max(most, std::sqrt(d) / std::max(1e-12, std::sqrt(n)));
  }
  return most;
}

}  // namespace tessera::test
