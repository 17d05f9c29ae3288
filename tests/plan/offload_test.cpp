// State that rests away from the device: which bytes come and go, what a device holds of them, and
// the proof that catches a plan in which they come too late or are overwritten too early.
#include "plan/offload.h"

#include <gtest/gtest.h>

#include "plan/footprint.h"
#include "plan/moved.h"
#include "plan/planned.h"
#include "plan/traffic.h"

namespace tessera::plan::offload_test {
namespace {

// Two updates of 1000 and 256 elements; 256 of each state come and go at a time.
std::string updates(const std::string& home) {
  return R"(program t mesh()
  input w : f32[1000] param "w"
  input m : f32[1000] state "m")" +
         home + R"(
  input v : f32[1000] state "v")" +
         home + R"(
  input x : f32[256] param "x"
  input n : f32[256] state "n")" +
         home + R"(
  input o : f32[256] state "o")" +
         home + R"(
  input g : f32[1000] batch "g"
  input h : f32[256] batch "h"
  input lr : f32[] scalar "lr"
  input t : i64[] scalar "t"
  w1 : f32[1000], m1 : f32[1000], v1 : f32[1000] = adamw w m v g lr t
  x1 : f32[256], n1 : f32[256], o1 : f32[256] = adamw x n o h lr t
  output "w" = w1 updates "w"
  output "m" = m1 updates "m"
  output "v" = v1 updates "v"
  output "x" = x1 updates "x"
  output "n" = n1 updates "n"
  output "o" = o1 updates "o"
)";
}

Plan plan_of(const std::string& home, bool overlap = true) {
  return test::plan_with_moves(updates(home), overlap);
}

TEST(Offload, PiecesComeOneAheadAndGo) {
  EXPECT_EQ(test::words_of(plan_of(" on host by 1024")),
            (std::vector<std::string>{
                "fetch m+0",  "fetch v+0",  "fetch m+256", "fetch v+256", "adamw",
                "stow m+0",   "stow v+0",   "fetch m+512", "fetch v+512", "adamw",
                "stow m+256", "stow v+256", "fetch m+768", "fetch v+768", "adamw",
                "stow m+512", "stow v+512", "fetch n+0",   "fetch o+0",   "adamw",
                "stow m+768", "stow v+768", "adamw",       "stow n+0",    "stow o+0"}));
}

TEST(Offload, WithoutOverlapOnePieceIsThereAtATime) {
  const Plan plan = plan_of(" on file by 2048", false);
  EXPECT_EQ(
      test::words_of(plan),
      (std::vector<std::string>{"fetch m+0", "fetch v+0", "adamw", "stow m+0", "stow v+0",
                                "fetch m+512", "fetch v+512", "adamw", "stow m+512", "stow v+512",
                                "fetch n+0", "fetch o+0", "adamw", "stow n+0", "stow o+0"}));
  for (const Step& s : plan.steps) EXPECT_EQ(s.stream, 0);
  EXPECT_EQ(plan.arena_bytes, 2 * 2048);
}

// A device holds the weights and three places of two pieces; every byte of state comes and goes
// once.
TEST(Offload, BytesAreExact) {
  const Plan here = plan_of(""), away = plan_of(" on host by 1024");
  const std::int64_t state = 2 * (4032 + 1024), weights = 4032 + 1024;  // whole lines of 64 bytes
  EXPECT_EQ(here.persistent_bytes(), weights + state);
  EXPECT_EQ(here.arena_bytes, 0);
  EXPECT_EQ(away.persistent_bytes(), weights);
  EXPECT_EQ(away.bytes_on(ir::Home::host), state);
  EXPECT_EQ(away.bytes_on(ir::Home::file), 0);
  EXPECT_EQ(away.arena_bytes, 3 * 2 * 1024);
  EXPECT_EQ(away.memory.workspace, away.arena_bytes);
  EXPECT_EQ(away.memory.optimizer, 0);
  EXPECT_EQ(away.memory.total(), away.peak_bytes());
  EXPECT_EQ(away_traffic(away).fetched, 4 * 2 * (1000 + 256));
  EXPECT_EQ(away_traffic(away).stowed, 4 * 2 * (1000 + 256));
  EXPECT_EQ(away_traffic(here).fetched, 0);
  const Footprint room = footprint_of(plan_of(" on file by 1024"));
  EXPECT_EQ(room.bytes_on(ir::Home::file), state);
  EXPECT_EQ(room.bytes(), away.peak_bytes());
}

// Two plans of one run cannot have a buffer in two places.
TEST(Offload, PlansAgreeWhereABufferRests) {
  Footprint room = footprint_of(plan_of(" on file by 1024"));
  EXPECT_THROW(room.add(plan_of(" on host by 1024")), Error);
}

// Every wait is needed: without any one of them the plan is refused.
TEST(Offload, EveryWaitIsNeeded) {
  const Plan good = plan_of(" on host by 1024");
  int waits = 0;
  for (std::size_t i = 0; i < good.steps.size(); ++i)
    for (std::size_t k = 0; k < good.steps[i].waits.size(); ++k, ++waits) {
      Plan bad = good;
      bad.steps[i].waits.erase(bad.steps[i].waits.begin() + static_cast<std::ptrdiff_t>(k));
      EXPECT_THROW(verify(bad), Error) << "step " << i << " wait " << k;
    }
  EXPECT_EQ(waits, 10 + 4);  // for all that comes, and for the places of two pieces that went
  verify(good);
}

// A value that is not stowed, or stowed elsewhere, is not there for the next step.
TEST(Offload, APieceThatIsMissingIsFound) {
  const Plan good = plan_of(" on file by 1024", false);
  for (std::size_t i = 0; i < good.steps.size(); ++i) {
    if (good.steps[i].move == Move::none) continue;
    Plan missing = good, elsewhere = good;
    missing.steps.erase(missing.steps.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THROW(verify(missing), Error) << "without step " << i;
    Step& step = elsewhere.steps[i];
    (step.move == Move::fetch ? step.in[0] : step.out[0]).offset += 64;
    EXPECT_THROW(verify(elsewhere), Error) << "step " << i << " elsewhere";
  }
}

TEST(Offload, OnlyWhatWorksElementByElementIsDoneInPieces) {
  const ir::Program p = ir::parse(
      "program t mesh()\n  input m : f32[1000] state \"m\" on host by 1024\n  s : f32[] = sumsq m\n"
      "  output \"s\" = s\n");
  try {
    lower(p, 0, {});
    ADD_FAILURE() << "a sum of squares was done in pieces";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("m rests on the host, so `s : f32[] = sumsq m`"),
              std::string::npos)
        << e.what();
  }
}

TEST(Offload, TheTextSaysWhereAndHowMuch) {
  for (const char* bad : {" on device by 64", " on host", " on host by 0", " on disk by 64"})
    EXPECT_THROW(ir::parse(updates(bad)), Error) << bad;
  EXPECT_THROW(ir::verify(ir::parse("program t mesh()\n  input x : f32[4] batch \"x\" on host by "
                                    "64\n  output \"x\" = x\n")),
               Error);
}

}  // namespace
}  // namespace tessera::plan::offload_test
