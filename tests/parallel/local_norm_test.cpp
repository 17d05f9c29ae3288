// Local batch norm, plain and deferred, is a program of its own: statistics of each rank's samples.
// What it means is written before anything is placed, so that program, run as it stands on one rank
// with the whole batch, is what the ranks must reproduce.
#include <gtest/gtest.h>

#include "compile/pipeline.h"
#include "parallel/world.h"
#include "session/bytes.h"
#include "session/init.h"

namespace tessera::test::local_norm_test {
namespace {

// The program of a layout before placement, in an executor of its own: one rank, no collectives.
Trace unplaced(const config::Config& config, int steps) {
  const auto executor = exec::make_executor("cpu", 1);
  ir::Program program;
  transforms::RunOptions options;
  options.before = [&](const transforms::Pass& pass, const ir::Program& p) {
    if (pass.name == "place") program = p;
  };
  const std::int64_t n = config.batch.global;
  const std::vector<std::int64_t> micro = run::micro_batches(n, config.batch.accumulate);
  run::compile(config, run::Goal::train, micro, executor->target(), options, run::Weights::live, 0,
               run::ImageForm::numbers);
  const plan::Plan plan = plan::lower(program, 0, executor->target());
  const auto loaded = executor->load(plan);

  const run::ParamSource source = run::initial_weights(static_cast<std::uint64_t>(config.run.seed));
  std::map<std::string, std::pair<std::string, std::int64_t>> home;  // parameter -> buffer, offset
  for (const transforms::Bucket& bucket : run::model_buckets(config))
    for (const transforms::Bucket::Entry& entry : bucket.entries)
      home[entry.param] = {"weights." + bucket.name, entry.offset};
  for (const models::Param& p : models::parameters(config.model)) {
    const auto [buffer, offset] =
        home.contains(p.name) ? home[p.name]
                              : std::pair{run::state_name(p, run::Weights::live), std::int64_t{0}};
    executor->write_persistent(buffer, offset * 8, run::encode(source(p), ir::DType::f64));
  }
  const auto scalar = [&](const char* name, double value) {
    loaded->write(name, run::encode(std::span(&value, 1), plan.input(name)->slot.type.dtype));
  };
  const auto read = [&](const char* name) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(plan.output(name)->slot.type.bytes()));
    loaded->read(name, bytes);
    return run::decode(bytes, plan.output(name)->slot.type.dtype)[0];
  };
  Trace out;
  for (int step = 1; step <= steps; ++step) {
    const Samples samples = samples_of(config.model, step, n);
    const std::vector<std::byte> images = run::encode(
        std::vector<double>(samples.images.begin(), samples.images.end()), ir::DType::f64);
    const std::span<const std::byte> labels = std::as_bytes(std::span(samples.labels));
    std::int64_t begin = 0;
    for (std::size_t m = 0; m < micro.size(); begin += micro[m++]) {
      const std::string tag = micro.size() > 1 ? "." + std::to_string(m) : "";
      const auto part = [&](std::span<const std::byte> all) {
        const std::size_t each = all.size() / static_cast<std::size_t>(n);
        return all.subspan(static_cast<std::size_t>(begin) * each,
                           static_cast<std::size_t>(micro[m]) * each);
      };
      loaded->write("images" + tag, part(images));
      loaded->write("labels" + tag, part(labels));
    }
    scalar("inv_count", 1.0 / static_cast<double>(n));
    scalar("lr", config.optim.lr);
    scalar("step", step);
    loaded->run();
    out.loss.push_back(read("loss"));
    out.grad_norm.push_back(read("grad_norm"));
  }
  for (const models::Param& p : models::parameters(config.model)) {
    const auto [buffer, offset] =
        home.contains(p.name) ? home[p.name]
                              : std::pair{run::state_name(p, run::Weights::live), std::int64_t{0}};
    std::vector<std::byte> bytes(static_cast<std::size_t>(ir::elements(p.shape) * 8));
    executor->read_persistent(buffer, offset * 8, bytes);
    out.weights[p.name] = run::decode(bytes, ir::DType::f64);
  }
  return out;
}

struct Case {
  std::string layout, batch_norm = "local";
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.layout << " " << c.batch_norm; }

class LocalNorm : public testing::TestWithParam<Case> {};

TEST_P(LocalNorm, IsTheUnplacedProgramWithAGroupPerRank) {
  Training t{with_layout(tiny("resnet"), GetParam().layout)};
  t.config.model.batch_norm = GetParam().batch_norm;
  t.config.batch.global = 10;  // uneven over 3 and 4
  config::Config whole = t.config;
  whole.parallel.tp = 1;  // shares out channels, not samples
  const Trace got = train(t), want = unplaced(whole, t.steps);
  EXPECT_LE(difference(got.loss, want.loss), 1e-9);
  EXPECT_LE(difference(got.grad_norm, want.grad_norm), 1e-9);
  EXPECT_LE(weight_difference(got, want), 1e-8);
  // And it is not the synchronised one.
  t.config.model.batch_norm = "sync";
  t.steps = 1;
  EXPECT_GT(difference(train(t).loss, {want.loss[0]}), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, LocalNorm,
    testing::Values(Case{"dp4"}, Case{"dp3 zero1"}, Case{"dp2 zero3"}, Case{"dp5 zero2"},
                    Case{"dp2 zero1 acc3"},
                    // dp4 acc3: 4, 3 and 3 samples, so that some ranks have none; dp4 acc2: 5 and 5
                    Case{"dp2", "deferred"}, Case{"dp2 acc2", "deferred"},
                    Case{"dp2 zero1", "deferred"}, Case{"dp2 zero1 acc3", "deferred"},
                    Case{"dp4 acc3", "deferred"}, Case{"dp4 acc2", "deferred"},
                    Case{"dp2 tp2 acc2", "deferred"}, Case{"dp2 zero2 acc2 recompute", "deferred"},
                    Case{"dp2 zero3 acc2", "deferred"}));

// On one rank and on two the same micro-batches are deferred alike where no rank has a group of its
// own: tp shares out channels, not samples.
TEST(DeferredNorm, OnATensorAxisIsThatOfOneRank) {
  Training t{with_layout(tiny("resnet"), "acc3")};
  t.config.model.batch_norm = "deferred";
  t.config.batch.global = 10;
  const Trace want = train(t);
  t.config.parallel.tp = 2;
  const Trace got = train(t);
  EXPECT_LE(difference(got.loss, want.loss), 1e-9);
  EXPECT_LE(weight_difference(got, want), 1e-8);
}

// Ranks that normalise by themselves, as local: only what evaluation reads is another.
TEST(DeferredNorm, StepsAreThoseOfLocalNorms) {
  Training t{with_layout(tiny("resnet"), "dp2 zero1 acc2")};
  t.steps = 5;
  t.config.model.batch_norm = "deferred";
  const Trace deferred = train(t);
  t.config.model.batch_norm = "local";
  const Trace local = train(t);
  EXPECT_LE(difference(deferred.loss, local.loss), 1e-9);
  EXPECT_LE(difference(deferred.grad_norm, local.grad_norm), 1e-9);
  EXPECT_GT(
      difference(deferred.weights.at("bn1.running_mean"), local.weights.at("bn1.running_mean")),
      1e-3);
}

}  // namespace
}  // namespace tessera::test::local_norm_test
