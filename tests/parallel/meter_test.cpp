// Where waiting for a late rank is booked, and who is named as the one that the others waited for.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <thread>

#include "measure/meter.h"
#include "parallel/world.h"
#include "ranks/clocks.h"
#include "session/init.h"
#include "train/train_report.h"

namespace tessera::test::meter_test {
namespace {

constexpr int late_rank = 2, steps = 4;  // the first, the third: sampled
constexpr double late_ms = 60;

struct Seen {
  std::vector<report::Breakdown> breakdowns;  // of the third step, by rank
  nlohmann::ordered_json ranks;
};

// Three ranks train; after each step one of them comes late to the meeting that ends it.
Seen train_with_a_late_rank() {
  config::Config config = with_layout(tiny("vit", "f32"), "dp3");
  config.run.trace = 0;
  Seen out;
  out.breakdowns.resize(3);
  std::mutex mutex;
  comm::run_local(3, [&](comm::Comm& world) {
    run::Session session(config, {}, &world);
    session.load(run::initial_weights(3));
    const run::Ranks ranks(&world);
    run::Meter meter(config, ranks, session, std::filesystem::temp_directory_path());
    for (int step = 1; step <= steps; ++step) {
      const auto [images, labels] = samples_of(config.model, step, config.batch.global);
      const std::int64_t began = run::steady_ns();
      const run::StepResult r = session.train_step(images, labels, 1e-3, step, 0);
      const double ran_ms = static_cast<double>(run::steady_ns() - began) * 1e-6;
      if (world.rank() == late_rank)
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(late_ms));
      const run::Measured seen =
          meter.step(step, meter.wanted(step), r.timeline,
                     session
                         .compiled({run::Goal::train, config.batch.global, run::Weights::live,
                                    run::ImageForm::numbers})
                         .plan,
                     config.batch.global, began, 0, ran_ms, false);
      if (step == 3) out.breakdowns[static_cast<std::size_t>(world.rank())] = seen.breakdown;
    }
    const nlohmann::ordered_json all = meter.ranks_json(0, 0);
    const std::lock_guard lock(mutex);
    out.ranks = all;
  });
  return out;
}

// summary.json's `waited_for` of a run whose steps took step_ms.
constexpr double step_ms = 2 * late_ms;
nlohmann::ordered_json waited_for_in_summary(const nlohmann::ordered_json& ranks) {
  run::TrainResults results;
  results.ranks = ranks;
  results.step_ms = {step_ms};
  return run::summary_of(with_layout(tiny("vit", "f32"), "dp3"), {}, results)["waited_for"];
}

TEST(Meter, WaitingForALateRankIsNoWorkOfItsPeers) {
  const Seen seen = train_with_a_late_rank();
  for (int rank = 0; rank < 3; ++rank) {
    const report::Breakdown& b = seen.breakdowns[static_cast<std::size_t>(rank)];
    if (rank == late_rank) continue;
    EXPECT_GE(b.wait, late_ms * 0.8) << "rank " << rank;
    EXPECT_LT(b.host, late_ms * 0.8) << "rank " << rank;
  }
  const auto waited = [&](int rank) {
    return seen.ranks[static_cast<std::size_t>(rank)]["others_waited_ms"].get<double>();
  };
  EXPECT_GE(waited(late_rank), late_ms * 0.8);
  for (const int rank : {0, 1}) EXPECT_LT(waited(rank), waited(late_rank)) << rank;
  const nlohmann::ordered_json named = waited_for_in_summary(seen.ranks);
  EXPECT_EQ(named["rank"], late_rank);
  EXPECT_DOUBLE_EQ(named["ms"].get<double>(), waited(late_rank));
  EXPECT_DOUBLE_EQ(named["share"].get<double>(), waited(late_rank) / step_ms);
  nlohmann::ordered_json alone = nlohmann::ordered_json::array({seen.ranks[0]});
  alone[0]["others_waited_ms"] = 0;
  EXPECT_TRUE(waited_for_in_summary(alone).is_null()) << "nobody waited";
}

// Gives what two ranks say to each other after steps of this length, of which one is asked to stop
// after the 22nd: messages, and the steps after which each of them heard of it.
struct Talk {
  std::int64_t messages = 0;
  std::vector<std::int64_t> stopped;
};
Talk talk_after_steps_of(double ms) {
  config::Config config = with_layout(tiny("vit", "f32"), "dp2");
  config.run.trace = 0;
  Talk out;
  out.stopped.resize(2);
  comm::run_local(2, [&](comm::Comm& world) {
    run::Session session(config, {}, &world);
    const run::Ranks ranks(&world);
    run::Meter meter(config, ranks, session, std::filesystem::temp_directory_path());
    const plan::Plan plan;
    exec::Timeline timeline;
    timeline.wall_ms = ms;
    const comm::Traffic before = world.traffic();
    std::int64_t step = 0;
    bool stop = false;
    while (!stop && step < 60) {
      ++step;
      const bool asked = world.rank() == 1 && step >= 22;
      stop = meter.step(step, {}, timeline, plan, 8, run::steady_ns(), 0, ms, asked).stop;
    }
    out.stopped[static_cast<std::size_t>(world.rank())] = step;
    if (world.rank() == 0) out.messages = (world.traffic() - before)[comm::Verb::all_gather].count;
  });
  return out;
}

TEST(Meter, ShortStepsAreNotFollowedByAMessageEach) {
  const Talk shortly = talk_after_steps_of(1), long_ones = talk_after_steps_of(250);
  EXPECT_LE(shortly.messages, 5);
  EXPECT_EQ(shortly.stopped[0], shortly.stopped[1]);
  EXPECT_GE(shortly.stopped[0], 22);
  EXPECT_LE(shortly.stopped[0], 32);                                  // with the next message
  EXPECT_EQ(long_ones.stopped, (std::vector<std::int64_t>{22, 22}));  // at once
  EXPECT_GE(long_ones.messages, 22);
}

}  // namespace
}  // namespace tessera::test::meter_test
