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
                     session.compiled(run::Goal::train, config.batch.global).plan,
                     config.batch.global, began, 0, ran_ms, false);
      if (step == 3) out.breakdowns[static_cast<std::size_t>(world.rank())] = seen.breakdown;
    }
    const nlohmann::ordered_json all = meter.ranks_json(0, 0);
    const std::lock_guard lock(mutex);
    out.ranks = all;
  });
  return out;
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
}

}  // namespace
}  // namespace tessera::test::meter_test
