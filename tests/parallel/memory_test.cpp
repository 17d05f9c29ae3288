// The memory that a whole training needs is known before it starts, to the byte: its last, smaller
// batches, evaluation and recalibration included.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "exec/device.h"
#include "parallel/world.h"
#include "session/room.h"
#include "verbs/explain_memory.h"
#include "verbs/verbs.h"

namespace tessera::test::memory_test {
namespace {

namespace fs = std::filesystem;
using run::Goal;
using run::Weights;

// 20 samples in batches of 8: the last has 4. 11 test samples: evaluation has a last, smaller
// batch, too.
config::Config whole_run(const std::string& family, const std::string& layout) {
  config::Config c = with_layout(tiny(family, "f32"), layout);
  c.data.source = "synthetic";
  c.data.train_size = 20;
  c.data.test_size = 11;
  c.data.workers = 0;
  c.batch.micro = c.batch.global / c.batch.accumulate / c.parallel.dp;
  c.ema.decay = 0.9;
  c.run.epochs = 1;
  c.run.steps = 0;
  c.run.trace = 0;
  c.run.np = ranks_of(c);
  return c;
}

nlohmann::json summary_of_training(config::Config config) {
  const fs::path out = fs::temp_directory_path() / ("tessera_memory_" + std::to_string(::getpid()));
  config.run.out = out.string();
  const run::TrainOptions options{.given = {}, .fresh = true, .quiet = true};
  if (ranks_of(config) == 1)
    EXPECT_EQ(run::train(config, options), 0);
  else
    comm::run_local(ranks_of(config),
                    [&](comm::Comm& world) { EXPECT_EQ(run::train(config, options, &world), 0); });
  std::ifstream file(out / "summary.json");
  nlohmann::json summary = nlohmann::json::parse(file);
  fs::remove_all(out);
  return summary;
}

void expect_as_planned(const std::string& family, const std::string& layout) {
  SCOPED_TRACE(family + ": " + layout);
  const config::Config config = whole_run(family, layout);
  const nlohmann::json summary = summary_of_training(config);
  ASSERT_EQ(summary["ranks"].size(), static_cast<std::size_t>(ranks_of(config)));
  const plan::Target target =
      exec::target_of(config.run.device, static_cast<int>(config.run.threads));
  for (int rank = 0; rank < ranks_of(config); ++rank) {
    const nlohmann::json& peak = summary["ranks"][static_cast<std::size_t>(rank)]["peak_bytes"];
    EXPECT_EQ(peak["planned"], peak["measured"]) << "rank " << rank;
    const run::RunMemory explained = run::memory_of_run(config, rank, {}, target, {});
    EXPECT_EQ(explained.bytes, peak["measured"].get<std::int64_t>())
        << "rank " << rank << ", as explain says";
    EXPECT_EQ(explained.assumed, "");
  }
}

TEST(RunMemory, IsAsPlannedOnEveryRank) {
  for (const char* layout : {"recompute acc4", "pp2 acc4 1f1b recompute"})
    expect_as_planned("resnet", layout);
  expect_as_planned("vit", "dp2 zero3 acc2");
}

TEST(Long, RunMemoryOfEveryModelAndLayout) {
  for (const char* family : {"vit", "swin", "resnet"})
    for (const char* layout :
         {"acc1", "acc4", "recompute", "dp2", "dp3 acc2", "tp2 acc2", "dp2 zero1", "dp2 zero2 acc2",
          "dp2 zero3 recompute", "pp2 acc4 1f1b", "pp2 acc4 gpipe", "pp2 acc4 zb",
          "dp2 pp2 acc2 1f1b", "dp2 tp2 pp2 acc2 1f1b", "segments2 acc4", "dp2 compress=int8"})
      expect_as_planned(family, layout);
}

TEST(RunPlans, AreThoseThatARunGoesThrough) {
  const auto names = [](const config::Config& config, std::int64_t samples, std::int64_t test) {
    config::Config c = config;
    const run::RunExtent extent = run::extent_of(c, samples, test);
    c.batch.global = extent.batch;
    std::vector<std::string> out;
    for (const run::PlanKey& key : run::plans_of_training(c, extent))
      out.push_back(run::name_of(key));
    return out;
  };
  using Names = std::vector<std::string>;
  config::Config c = whole_run("resnet", "acc1");
  EXPECT_EQ(names(c, 20, 11), (Names{"train 8", "train 4", "predict 1", "predict 1 (average)",
                                     "recalibrate 8 (average)", "recalibrate 4 (average)",
                                     "evaluate 8 (average)", "evaluate 3 (average)"}));
  // More batches than a recalibration looks at; a run that ends before the last batch of an epoch;
  // nothing to evaluate.
  EXPECT_EQ(names(c, 8 * 20 + 4, 16),
            (Names{"train 8", "train 4", "predict 1", "predict 1 (average)",
                   "recalibrate 8 (average)", "evaluate 8 (average)"}));
  c.run.steps = 2;
  EXPECT_EQ(names(c, 20, 0), (Names{"train 8", "predict 1", "predict 1 (average)"}));
  c.run.steps = 0;
  c.data.drop_last = true;
  c.ema.decay = 0;
  EXPECT_EQ(names(c, 20, 5), (Names{"train 8", "predict 1", "evaluate 5"}));
  // Fewer samples than a batch asks for.
  EXPECT_EQ(names(c, 5, 5), (Names{"train 5", "predict 1", "evaluate 5"}));
}

// A plan that does not fit is said before anything is allocated, whichever plan it is.
TEST(RunMemory, APlanThatDoesNotFitIsRefusedAtTheStart) {
  run::Session session(whole_run("resnet", "acc1"));
  const std::vector<run::PlanKey> plans = {
      {Goal::train, 8}, {Goal::recalibrate, std::int64_t{1} << 32, Weights::average}};
  try {
    run::reserve(session, plans, run::Ranks(nullptr));
    ADD_FAILURE() << "a plan of 2^32 samples was given room";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::memory) << error.what();
  }
  EXPECT_EQ(session.executor().allocated_bytes(), 0);
}

// Each of two ranks would fit alone; together they do not.
TEST(RunMemory, RanksOfAMachineShareIt) {
  const std::int64_t available = exec::device_info("cpu", 1).memory();
  comm::run_local(2, [&](comm::Comm& world) {
    const run::Ranks ranks(&world);
    EXPECT_NO_THROW(run::check_room(ranks, available / 4, available));
    try {
      run::check_room(ranks, available / 4 * 3, available);
      ADD_FAILURE() << "twice three quarters of the memory were accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind, ErrorKind::memory);
      EXPECT_NE(error.message.find("the 2 ranks of this machine need"), std::string::npos)
          << error.message;
    }
  });
}

}  // namespace
}  // namespace tessera::test::memory_test
