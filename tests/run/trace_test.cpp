// Ten training steps against PyTorch's, in f64 to 1e-9: loss, gradient norm and the final weights,
// however the step is cut or recomputed.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "checkpoint/weights.h"
#include "files/safetensors.h"
#include "models/weights.h"
#include "session/session.h"

namespace tessera::run::trace_test {
namespace {

struct Case {
  std::string trace, recompute = "none", dtype = "f64";
  std::int64_t accumulate = 1, threads = 2;
  double tolerance = 1e-9;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.trace << " " << c.dtype << " recompute " << c.recompute << " accumulate "
       << c.accumulate;
}

class TraceTest : public testing::TestWithParam<Case> {};

TEST_P(TraceTest, MatchesPyTorch) {
  const Case& c = GetParam();
  const auto file = std::make_shared<const files::Safetensors>(
      TESSERA_SOURCE_DIR "/tests/golden/trace_" + c.trace + ".safetensors");
  const nlohmann::json trace = nlohmann::json::parse(file->metadata().at("tessera.trace")),
                       &optim = trace["optim"];
  config::Config config;
  config.model = model_of(*file);
  config.precision.dtype = c.dtype;
  config.parallel.recompute = c.recompute;
  // Batch norm sees micro-batches: a trace that was cut says how.
  config.batch = {trace["batch"], trace["batch"], optim.value("micro", c.accumulate)};
  config.run.threads = c.threads;
  config.loss.label_smoothing = trace["label_smoothing"];
  config.optim.name = optim["name"];
  config.optim.weight_decay = optim["weight_decay"];
  config.optim.clip = optim["clip"];
  config.optim.momentum = optim.value("momentum", 0.9);
  config.optim.nesterov = optim.value("nesterov", false);
  config.optim.eps = optim.value("eps", 1e-8);
  config.optim.layer_decay = optim.value("layer_decay", 1.0);
  config.optim.freeze = optim.value("freeze", "none");
  config.ema.decay = optim.value("ema", 0.0);

  Session session(config);
  std::vector<std::string> notes;
  session.load(weights_from(file, config.model, Adapt{}, notes, "param."));
  const std::vector<double> input = files::to_doubles(file->read("input")),
                            labels = files::to_doubles(file->read("labels"));
  const std::vector<double> loss = files::to_doubles(file->read("loss")),
                            norm = files::to_doubles(file->read("grad_norm"));
  const std::vector<std::int64_t> s = file->at("input").shape;  // steps, n, c, h, w
  const std::size_t batch = static_cast<std::size_t>(s[1]),
                    pixels = static_cast<std::size_t>(s[2] * s[3] * s[4]);
  for (std::size_t step = 0; step < static_cast<std::size_t>(s[0]); ++step) {
    std::vector<float> images(batch * pixels);
    std::size_t from = step * batch * pixels;
    for (std::int64_t n = 0; n < s[1]; ++n)
      for (std::int64_t ch = 0; ch < s[2]; ++ch)
        for (std::int64_t h = 0; h < s[3]; ++h)
          for (std::int64_t w = 0; w < s[4]; ++w)
            images[static_cast<std::size_t>(((n * s[3] + h) * s[4] + w) * s[2] + ch)] =
                static_cast<float>(input[from++]);
    std::vector<std::int32_t> target;
    for (std::size_t i = 0; i < batch; ++i)
      target.push_back(static_cast<std::int32_t>(labels[step * batch + i]));
    const StepResult r =
        session.train_step(images, target, optim["lr"], static_cast<std::int64_t>(step) + 1, 0);
    EXPECT_TRUE(r.ok);
    EXPECT_NEAR(r.loss, loss[step], c.tolerance * std::abs(loss[step])) << "step " << step;
    EXPECT_NEAR(r.grad_norm, norm[step], c.tolerance * 10 * norm[step]) << "step " << step;
  }
  auto compare = [&](const std::string& name, const std::vector<double>& got,
                     const std::vector<double>& want) {
    double difference = 0, reference = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      difference += (got[i] - want[i]) * (got[i] - want[i]);
      reference += want[i] * want[i];
    }
    EXPECT_LE(std::sqrt(difference), c.tolerance * 10 * std::sqrt(reference)) << name;
  };
  for (const models::Param& p : models::parameters(config.model))
    for (const auto& [prefix, weights] :
         {std::pair{"final.", Weights::live}, std::pair{"ema.", Weights::average}})
      if (weights == Weights::live || session.averages())
        compare(prefix + p.name, session.parameter(p.name, weights),
                models::from_torch(p, files::to_doubles(file->read(prefix + p.name))));
}

INSTANTIATE_TEST_SUITE_P(
    Traces, TraceTest,
    testing::Values(Case{"adamw"}, Case{"sgd"}, Case{"adamw", "full"}, Case{"adamw", "every=2"},
                    Case{"sgd", "none", "f64", 2}, Case{"adamw", "full", "f64", 3}, Case{"lamb"},
                    Case{"lamb", "every=2", "f64", 2}, Case{"fine_tune"},
                    Case{"fine_tune", "full", "f64", 2}, Case{"resnet"}, Case{"resnet", "full"},
                    Case{"resnet", "none", "f32", 1, 2, 2e-4},
                    Case{"lamb", "none", "f32", 1, 1, 2e-3}, Case{"sgd", "none", "f32", 1, 2, 2e-4},
                    Case{"adamw", "full", "f32", 2, 1, 2e-3}));

}  // namespace
}  // namespace tessera::run::trace_test
