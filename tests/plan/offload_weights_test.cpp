// Weights that rest away from the device: they come whole before they are used and again where they
// are used again, and the update leaves them where they rest.
#include <gtest/gtest.h>

#include "base/check.h"
#include "plan/moved.h"
#include "plan/plan.h"
#include "plan/staging.h"
#include "plan/traffic.h"

namespace tessera::plan::offload_weights_test {
namespace {

// Two layers in both directions, each copied one ahead of its use; then the updates, the second
// one's average too, which is made of weights that have just gone.
std::string step(const std::string& home) {
  return R"(program t mesh()
  input w : f32[512] param "w")" +
         home + R"(
  input x : f32[512] param "x")" +
         home + R"(
  input e : f32[512] state "e"
  input m : f32[512] state "m"
  input n : f32[512] state "n"
  input lr : f32[] scalar "lr"
  input b : f32[512] batch "b"
  w/here : f32[512] = copy w
  x/here : f32[512] = copy x
  y : f32[512] = mul sig="a,a->a" b w/here
  x/here~2 : f32[512] = copy x  # ~
  z : f32[512] = mul sig="a,a->a" y x/here
  w/here~2 : f32[512] = copy w  # ~
  g : f32[512] = mul sig="a,a->a" z x/here~2  # ~
  h : f32[512] = mul sig="a,a->a" g w/here~2  # ~
  w1 : f32[512], m1 : f32[512] = sgd w m h lr  # !optimizer
  x1 : f32[512], n1 : f32[512] = sgd x n g lr  # !optimizer
  e1 : f32[512] = ema decay=0.9 e x1  # !optimizer
  output "w" = w1 updates "w"
  output "m" = m1 updates "m"
  output "x" = x1 updates "x"
  output "n" = n1 updates "n"
  output "e" = e1 updates "e"
)";
}

Plan plan_of(const std::string& home, bool overlap = true) {
  return test::plan_with_moves(step(home), overlap);
}

TEST(OffloadedWeights, ComeBeforeEveryUseAndStayWhereTheyRest) {
  EXPECT_EQ(test::words_of(plan_of(" on host by 1024"), true),
            (std::vector<std::string>{
                "fetch w+0", "fetch x+0",  "mul",        "fetch x+0",   "mul", "fetch w+0",
                "mul",       "mul",        "fetch w+0",  "fetch w+256", "sgd", "stow w+0",
                "fetch x+0", "sgd",        "stow w+256", "fetch x+256", "sgd", "stow x+0",
                "sgd",       "stow x+256", "fetch x+0",  "fetch x+256", "ema", "ema"}));
}

// On the device there are two weights at a time, and three pieces of one.
TEST(OffloadedWeights, BytesAreExact) {
  const Plan here = plan_of(""), away = plan_of(" on host by 1024"),
             plain = plan_of(" on host by 1024", false);
  const std::int64_t one = 2048;
  EXPECT_EQ(here.bytes_on(ir::Home::device) - away.bytes_on(ir::Home::device), 2 * one);
  EXPECT_EQ(here.memory.weights, 2 * one);
  EXPECT_EQ(away.memory.weights, 0);
  EXPECT_EQ(away.bytes_on(ir::Home::host), 2 * one);
  EXPECT_EQ(away.memory.total(), away.peak_bytes());
  EXPECT_EQ(away_traffic(away).fetched, (2 + 2 + 2 + 1) * one);
  EXPECT_EQ(away_traffic(away, ir::Home::host).stowed, 2 * one);
  EXPECT_EQ(away_traffic(away, ir::Home::file).fetched, 0);
  EXPECT_LE(plain.arena_bytes, away.arena_bytes);
  for (const Step& s : plain.steps) EXPECT_EQ(s.stream, 0);
}

TEST(OffloadedWeights, EveryWaitIsNeeded) {
  const Plan good = plan_of(" on host by 1024");
  int waits = 0;
  for (std::size_t i = 0; i < good.steps.size(); ++i)
    for (std::size_t k = 0; k < good.steps[i].waits.size(); ++k, ++waits) {
      Plan bad = good;
      bad.steps[i].waits.erase(bad.steps[i].waits.begin() + static_cast<std::ptrdiff_t>(k));
      EXPECT_THROW(verify(bad), Error) << "step " << i << " wait " << k;
    }
  EXPECT_GT(waits, 10);
}

// An update that needs whole tensors: a copy comes, a copy goes back.
TEST(OffloadedWeights, GoBackWholeWhereTheUpdateNeedsThemWhole) {
  const ir::Program p = ir::parse(R"(program t mesh()
  input w : f32[512] param "w" on host by 1024
  input u : f32[512] batch "u"
  input lr : f32[] scalar "lr"
  w/here : f32[512] = copy w
  sw : f32[1] = segment_sumsq offsets=[0] sizes=[512] w/here  # !optimizer
  su : f32[1] = segment_sumsq offsets=[0] sizes=[512] u  # !optimizer
  w1 : f32[512] = lamb_update offsets=[0] sizes=[512] w/here u sw su lr  # !optimizer
  w1/back : f32[512] = copy w1  # !optimizer
  output "w" = w1/back updates "w"
)");
  ir::verify(p);
  for (const bool overlap : {true, false}) {
    const Plan plan = lower(p, 0, {.shared_half = 0}, overlap);
    EXPECT_EQ(test::words_of(plan, true),
              overlap ? (std::vector<std::string>{"fetch w+0", "segment_sumsq", "segment_sumsq",
                                                  "lamb_update", "stow w+0"})
                      : (std::vector<std::string>{"fetch w+0, and waits", "segment_sumsq",
                                                  "segment_sumsq", "lamb_update",
                                                  "stow w+0, and waits"}));
  }
}

// A copy of what is on the device is a step as any other.
TEST(OffloadedWeights, ACopyOnTheDeviceMovesNothing) {
  for (const Step& s : plan_of("").steps) EXPECT_TRUE(s.move == Move::none && s.stream == 0);
}

// As many places as copies of a file are under way at once, each as large as what it holds.
TEST(OffloadedWeights, PassThroughFewPlaces) {
  const Plan plan = plan_of(" on file by 1024");
  const FileStaging staging = file_staging(plan);
  std::map<std::size_t, int> held;  // place -> step
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    for (const int other : plan.steps[i].waits)
      std::erase_if(held, [&](const auto& place) { return place.second == other; });
    if (!moves_file(plan, plan.steps[i])) continue;
    const std::size_t place = staging.place_of.at(i);
    EXPECT_TRUE(held.emplace(place, static_cast<int>(i)).second) << "step " << i;
    EXPECT_GE(staging.bytes.at(place), plan.steps[i].in[0].type.bytes());
  }
  EXPECT_LE(staging.bytes.size(), 6u);
  EXPECT_LE(staging.total(), 6 * 2048);
  EXPECT_EQ(file_staging(plan_of(" on host by 1024")).total(), 0);
  EXPECT_EQ(file_staging(plan_of(" on file by 1024", false)).bytes.size(), 1u);
}

}  // namespace
}  // namespace tessera::plan::offload_weights_test
