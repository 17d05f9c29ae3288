// Ranks that differ: what fails on several of them is said of each, and steps are submitted as far
// ahead as the most careful of them does.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "files/scratch.h"
#include "ranks/carrier.h"
#include "ranks/device_here.h"
#include "ranks/ranks.h"
#include "verbs/verbs.h"

namespace tessera::run::mixed_test {
namespace {

TEST(MixedRanks, EveryRankSaysWhatItLacks) {
  comm::run_local(4, [](comm::Comm& world) {
    const Ranks ranks(&world);
    EXPECT_NO_THROW(ranks.together_telling_all([] {}));
    try {
      ranks.together_telling_all([&] {
        if (world.rank() == 1) throw Error(ErrorKind::device, "no card", "here", "buy one");
        if (world.rank() == 2) throw Error(ErrorKind::usage, "no bf16");
        if (world.rank() == 3) throw Error(ErrorKind::device, "no card", "here", "buy one");
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const AgreedError& e) {
      EXPECT_EQ(e.kind, ErrorKind::device);
      EXPECT_EQ(e.message, "no card");
      EXPECT_EQ(e.hint, "buy one");
      const std::string all = e.what();
      EXPECT_NE(all.find("rank 1"), all.npos) << all;
      EXPECT_NE(all.find("rank 2: no bf16"), all.npos) << all;
      EXPECT_NE(all.find("rank 3: the same"), all.npos) << all;
    }
  });
}

// Asked in a child, which leaves nothing behind.
TEST(MixedRanks, WhetherADeviceIsHereIsAskedInAChild) {
  EXPECT_EQ(missing_here("cpu"), "");
  EXPECT_NE(missing_here("abacus").find("this build has no executor for the device 'abacus'"),
            std::string::npos);
}

config::Config job(const std::filesystem::path& out) {
  config::Config c;
  c.model = models::preset("vit_micro");
  c.model.depth = 1;
  c.data.source = "synthetic:32x32x3,10";
  c.data.train_size = 24;
  c.data.test_size = 4;
  c.data.workers = 1;
  c.batch = {4, 2, 1};
  c.parallel.dp = 2;
  c.run.np = 2;
  c.run.threads = 1;
  c.run.epochs = 1;
  c.run.out = out.string();
  c.run.name = "mixed";
  return c;
}

std::vector<double> losses(const std::filesystem::path& out) {
  std::vector<double> all;
  std::ifstream file(out / "metrics.jsonl");
  for (std::string line; std::getline(file, line);)
    if (const nlohmann::json m = nlohmann::json::parse(line); m["kind"] == "step")
      all.push_back(m["loss"].get<double>());
  return all;
}

// A card submits a step ahead and a CPU none: whoever went ahead of the other would wait in a
// message of the next step, and the other for it between steps.
TEST(MixedRanks, NobodyRunsAheadOfAnother) {
  const test::Scratch scratch;
  const auto train_with = [&](const char* name, const std::vector<int>& ahead,
                              const std::string& device) {
    config::Config c = job(scratch / name);
    c.run.device = device;
    comm::run_local(2, [&](comm::Comm& world) {
      TrainOptions options;
      options.quiet = true;
      options.ahead = ahead[static_cast<std::size_t>(world.rank())];
      EXPECT_EQ(run::train(c, options, &world), 0);
    });
    return losses(scratch / name);
  };
  const std::vector<double> want = train_with("same", {0, 0}, "cpu");
  EXPECT_EQ(want.size(), 6u);
  EXPECT_EQ(train_with("mixed", {1, 0}, "cpu,cpu"), want);
}

}  // namespace
}  // namespace tessera::run::mixed_test
