// Layouts and sizes that nobody thought of: random models, batches and meshes in f64, each against
// one rank, with its communication predicted. TESSERA_FUZZ_ITERATIONS sets how many; the same ones
// every time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <random>
#include <sstream>

#include "parallel/world.h"
#include "plan/traffic.h"

namespace tessera::test::random_test {
namespace {

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  std::int64_t from(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  bool one_in(int n) { return from(1, n) == 1; }
  template <class T>
  T of(std::initializer_list<T> list) {
    return *(list.begin() + from(0, static_cast<std::int64_t>(list.size()) - 1));
  }

 private:
  std::mt19937 random_;
};

models::ModelConfig random_model(Dice& d, std::int64_t tp) {
  models::ModelConfig m = tiny(d.of<const char*>({"vit", "vit", "swin", "resnet"})).model;
  m.name = "";
  m.classes = d.from(2, 11);
  m.channels = d.from(1, 4);
  if (m.family == "vit") {
    m.patch = d.from(2, 4);
    m.image_h = m.patch * d.from(1, 4);
    m.image_w = m.patch * d.from(1, 4);
    m.heads = tp * d.from(1, 3);
    m.dim = m.heads * d.from(2, 6);
    m.depth = d.from(1, 3);
    m.mlp = tp * d.from(3, 12);
    m.pool = d.one_in(3) ? "mean" : "class";
    if (d.one_in(3)) m.dropout = 0.1;
  } else if (m.family == "swin") {
    m.image_h = m.patch * d.from(4, 11);
    m.image_w = m.patch * d.from(4, 11);
    m.depths = {d.from(1, 2), d.from(1, 2)};
    const std::int64_t heads = tp * d.from(1, 2);
    m.stage_heads = {heads, 2 * heads};
    m.dim = heads * 4;
    m.window_h = d.from(2, 4);
    m.window_w = d.from(2, 4);
  } else {
    m.image_h = d.from(6, 12);
    m.image_w = d.from(6, 12);
    m.width = tp * d.from(2, 4);
    m.layers = {1, d.from(1, 2)};
    if (d.one_in(3)) m.block = "bottleneck";
  }
  if (m.family != "resnet" && d.one_in(3)) m.drop_path = 0.2;
  return m;
}

// Stages on several ranks, or on one, as far as the model has blocks.
void random_pipeline(Dice& d, config::Config& c, std::int64_t most) {
  config::Parallel& p = c.parallel;
  if (c.model.family == "vit" && d.one_in(2)) c.model.depth += d.from(1, 4);
  const std::int64_t blocks = models::block_count(c.model);
  p.stages.word = d.of<const char*>({"params", "flops"});
  p.schedule = d.of<const char*>({"gpipe", "1f1b", "interleaved", "zb"});
  p.pp = std::min({d.of<std::int64_t>({1, 2, 2, 3, 4}), blocks, most});
  if (p.pp == 1 && d.one_in(2)) p.segments = std::min<std::int64_t>(d.from(2, 3), blocks);
  if (p.schedule == "interleaved")
    p.chunks = p.pp == 1 ? 1 : d.from(1, std::min<std::int64_t>(3, blocks / p.pp));
}

// A mesh of at most eight ranks that the model allows, and whatever else a step can have.
Training random_training(unsigned seed) {
  Dice d(seed);
  Training t{tiny("vit")};
  config::Config& c = t.config;
  config::Parallel& p = c.parallel;
  p.tp = d.of<std::int64_t>({1, 1, 2, 2, 3, 4});
  c.model = random_model(d, p.tp);
  if (c.model.family == "vit")
    p.sp =
        std::min<std::int64_t>({d.of<std::int64_t>({1, 1, 2, 3}), c.model.heads / p.tp, 8 / p.tp});
  random_pipeline(d, c, 8 / (p.tp * p.sp));
  p.dp = d.from(1, 8 / (p.tp * p.sp * p.pp));
  p.sequence = p.sp > 1                                                ? "ulysses"
               : p.tp > 1 && c.model.family != "resnet" && d.one_in(2) ? "megatron"
                                                                       : "none";
  p.zero = d.from(0, 3);
  p.persist = d.of<std::int64_t>({0, 50, 1000000});
  if (d.one_in(4)) p.recompute = "full";
  // Batch statistics of a few samples are chaotic: a ResNet gets more of them, and a micro-batch
  // that every layout sees alike.
  const bool resnet = c.model.family == "resnet";
  c.batch.global = resnet ? d.from(6, 12) : d.from(1, 10);
  c.batch.accumulate = std::min<std::int64_t>(c.batch.global, d.of<std::int64_t>({1, 1, 2, 3, 5}));
  c.optim.name = d.of<const char*>({"adamw", "adamw", "lamb", "sgd"});
  c.optim.clip = d.one_in(2) ? 1.0 : 0.0;
  if (d.one_in(4)) c.ema.decay = 0.9;
  if (d.one_in(4)) c.optim.layer_decay = 0.7;
  t.steps = 3;
  if (!resnet && d.one_in(4)) t.ragged = d.from(1, c.batch.global);
  if (p.zero < 3 && d.one_in(2))
    p.compress = "topk=1";  // all of a gradient, in lists: the same sums
  p.offload_optimizer = d.of<const char*>({"none", "none", "host", "file"});
  p.offload_folder = std::filesystem::temp_directory_path().string();
  p.offload_mb = 1.0 / static_cast<double>(1 << d.from(4, 12));  // some buckets in many pieces
  if (p.zero == 3) p.offload_params = d.of<const char*>({"none", "host", "file"});
  return t;
}

std::string describe(const config::Config& c) {
  const config::Parallel& p = c.parallel;
  const models::ModelConfig& m = c.model;
  std::ostringstream out;
  out << m.family << " " << m.image_h << "x" << m.image_w << " dim " << m.dim << " heads "
      << m.heads << " width " << m.width << " pp" << p.pp << " " << p.schedule << " chunks "
      << p.chunks << " segments " << p.segments << " dp" << p.dp << " sp" << p.sp << " tp" << p.tp
      << " zero" << p.zero << " " << p.sequence << " persist " << p.persist << " recompute "
      << p.recompute << " batch " << c.batch.global << " acc" << c.batch.accumulate << " "
      << c.optim.name << " compress " << p.compress << " offload " << p.offload_optimizer
      << " weights " << p.offload_params << " by " << p.offload_mb;
  return out.str();
}

void check(unsigned seed) {
  Training t = random_training(seed);
  SCOPED_TRACE("seed " + std::to_string(seed) + ": " + describe(t.config));
  ASSERT_TRUE(models::problems(t.config.model).empty()) << models::problems(t.config.model).front();
  std::mutex mutex;
  t.at_end = [&](run::Session& session, const Trace& mine) {
    if (t.ragged > 0) return;  // the last step was another plan
    comm::Traffic::Row sent;
    for (const plan::CommRow& row :
         plan::communication(compiled_step(session, t.config.batch.global).plan)) {
      sent.count += row.count;
      sent.bytes += row.bytes;
    }
    const std::lock_guard lock(mutex);
    EXPECT_EQ(mine.per_step.total(), sent) << "rank " << session.rank();
  };
  try {
    const Trace got = train(t);
    t.config.parallel.dp = t.config.parallel.sp = t.config.parallel.tp = t.config.parallel.pp = 1;
    t.config.parallel.segments = t.config.parallel.chunks = 1;
    t.config.parallel.zero = 0;
    t.config.parallel.sequence = "none";
    t.config.parallel.offload_optimizer = t.config.parallel.offload_params = "none";
    t.at_end = {};
    const Trace want = train(t);
    EXPECT_LE(difference(got.loss, want.loss), 1e-9);
    EXPECT_LE(difference(got.grad_norm, want.grad_norm), 1e-8);
    EXPECT_LE(weight_difference(got, want), 1e-7);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

TEST(RandomLayouts, SameTraceAsOneRank) {
  const char* given = std::getenv("TESSERA_FUZZ_ITERATIONS");
  const int count = given ? std::atoi(given) : 12;
  for (int seed = 0; seed < count; ++seed) check(static_cast<unsigned>(seed));
}

}  // namespace
}  // namespace tessera::test::random_test
