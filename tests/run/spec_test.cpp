// A configuration is resolved once: plans that are made of a spec read nothing again.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "compile/compile.h"
#include "compile/pipeline.h"
#include "ir/program.h"
#include "models/model.h"
#include "transforms/schedules.h"

namespace tessera::run::spec_test {
namespace {

namespace fs = std::filesystem;

config::Config two_stages(const std::string& schedule) {
  config::Config c;
  c.model = models::preset("vit_micro");
  c.batch.global = 4;
  c.batch.accumulate = 2;
  c.batch.micro = 2;
  c.parallel.pp = 2;
  c.parallel.schedule = schedule;
  return c;
}

TEST(Spec, SaysWhatAConfigurationMeans) {
  config::Config c = two_stages("1f1b");
  c.parallel.zero = 1;
  c.parallel.dp = 2;
  c.optim.name = "sgd";
  c.precision.dtype = "f64";
  const StepSpec spec = resolve(c);
  EXPECT_EQ(spec.mesh.ranks(), 4);
  EXPECT_EQ(spec.layout.zero, 1);
  EXPECT_EQ(spec.real, ir::DType::f64);
  EXPECT_EQ(spec.optimizer.name, "sgd");
  EXPECT_EQ(spec.compression.kind, "none");
  EXPECT_FALSE(spec.schedule);
  ASSERT_EQ(spec.blocks.size(), 2u);
  EXPECT_EQ(spec.blocks[0] + spec.blocks[1], models::block_count(c.model));
  for (const models::Param& p : models::parameters(c.model))
    EXPECT_TRUE(spec.stages.contains(p.name)) << p.name;
  std::size_t entries = 0;
  for (const transforms::Bucket& bucket : spec.buckets) entries += bucket.entries.size();
  EXPECT_EQ(entries, models::parameters(c.model).size());
  EXPECT_TRUE(resolve(config::Config{}).stages.empty());
}

// The file may change or go while a run is under way: its plans are all of one schedule.
TEST(Spec, AScheduleIsReadOnce) {
  const fs::path file = fs::path(testing::TempDir()) / "spec_test.schedule";
  std::ofstream(file) << transforms::print(transforms::gpipe(2, 2, 2));
  const StepSpec spec = resolve(two_stages("file:" + file.string()));
  ASSERT_TRUE(spec.schedule);
  fs::remove(file);
  for (const Goal goal : {Goal::train, Goal::predict})
    EXPECT_EQ(schedule_of(spec, goal, 2).stages, 2);
  const plan::Plan plan = compile(spec, Goal::train, {2, 2}, plan::Target{}).plan;
  EXPECT_FALSE(plan.steps.empty());
  EXPECT_THROW(resolve(spec.config), Error);
}

TEST(Spec, SharesOfABatchReachTheLayout) {
  config::Config c;
  c.model = models::preset("vit_micro");
  c.parallel.dp = 2;
  StepSpec spec = resolve(c);
  spec.share_by({1, 3});
  EXPECT_EQ(spec.layout.shares, (std::vector<double>{1, 3}));
  EXPECT_EQ(spec.config.parallel.shares.list, spec.layout.shares);
}

}  // namespace
}  // namespace tessera::run::spec_test
