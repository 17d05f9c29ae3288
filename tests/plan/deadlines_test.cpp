// Messages under way: how long they may take, what stays untouched meanwhile, and the proof that
// catches a plan that touches it.
#include <gtest/gtest.h>

#include "base/check.h"
#include "plan/planned.h"

namespace tessera::plan::deadlines_test {
namespace {

// A sum of x that leaves before y is made and is read only by z.
constexpr const char* overlapped = R"(program t mesh(dp=2:data)
  input x : f32[4,64]{dp:S0} batch "x"
  input g : f32[4,64]{dp:S0} batch "g"
  s : f32[64]{dp:P} = sum sig="bc->c" x
  all : f32[64] = all_reduce axis="dp" s
  pinned : f32[64] = mark label="grad" all
  y : f32[4,64]{dp:S0} = gelu g
  y2 : f32[4,64]{dp:S0} = gelu y
  t : f32[64]{dp:P} = sum sig="bc->c" y2
  z : f32[64] = scale factor=2 pinned
  u : f32[64] = all_reduce axis="dp" t
  output "z" = z
  output "u" = u
)";

std::vector<ir::Op> ops_of(const Plan& p) {
  std::vector<ir::Op> out;
  for (const Step& step : p.steps) out.push_back(step.op);
  return out;
}
int step_of(const Plan& p, ir::Op op, int nth = 0) {
  for (std::size_t i = 0; i < p.steps.size(); ++i)
    if (p.steps[i].op == op && nth-- == 0) return static_cast<int>(i);
  return -1;
}

TEST(Deadlines, AMessageIsDueBeforeItsFirstReader) {
  const Plan p = lower(ir::parse(overlapped), 0, test::no_workspace, true);
  const int first = step_of(p, ir::Op::all_reduce), last = step_of(p, ir::Op::all_reduce, 1),
            reader = step_of(p, ir::Op::scale);
  EXPECT_EQ(p.steps[static_cast<std::size_t>(first)].stream, 1);
  EXPECT_EQ(p.steps[static_cast<std::size_t>(reader)].waits,
            (std::vector<int>{first}));                          // through the mark
  EXPECT_EQ(p.steps[static_cast<std::size_t>(last)].stream, 1);  // an output: due at the end
  for (int i = first + 1; i < reader; ++i)
    EXPECT_TRUE(p.steps[static_cast<std::size_t>(i)].waits.empty());
}

TEST(Deadlines, WithoutOverlapEverythingIsDoneWhereItStands) {
  const Plan p = lower(ir::parse(overlapped), 0, test::no_workspace);
  for (const Step& step : p.steps) {
    EXPECT_EQ(step.stream, 0);
    EXPECT_TRUE(step.waits.empty());
  }
  EXPECT_EQ(ops_of(p), ops_of(lower(ir::parse(overlapped), 0, test::no_workspace, true)));
}

TEST(Deadlines, WhatRanksHandToEachOtherLiesFirst) {
  const Plan p = lower(ir::parse(overlapped), 0, test::no_workspace, true);
  EXPECT_EQ(p.shared_bytes, Target{}.shared_half);
  for (const Step& step : p.steps)
    for (const auto* list : {&step.in, &step.out})
      for (const Slot& s : *list)
        EXPECT_TRUE(!crosses_ranks(step.op) || s.base != 0 || s.offset < p.shared_bytes);
  EXPECT_EQ(p.memory.total(), p.peak_bytes());
  EXPECT_EQ(lower(ir::parse("program t mesh()\n  input x : f32[4] batch \"x\"\n  y : f32[4] = gelu "
                            "x\n  output \"y\" = y\n"),
                  0, test::no_workspace, true)
                .shared_bytes,
            0);
}

TEST(Deadlines, TheProofSeesWhoTouchesAMessageUnderWay) {
  const Plan good = lower(ir::parse(overlapped), 0, test::no_workspace, true);
  const auto refused = [](Plan p, const std::string& why) {
    try {
      verify(p);
      FAIL() << "accepted: " << why;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  };
  Plan p = good;
  p.steps[static_cast<std::size_t>(step_of(p, ir::Op::scale))].waits.clear();
  refused(p, "what is read has not arrived");
  p = good;
  Step& gelu = p.steps[static_cast<std::size_t>(step_of(p, ir::Op::gelu))];
  gelu.workspace = p.steps[static_cast<std::size_t>(step_of(p, ir::Op::all_reduce))].out[0];
  refused(p, "a message under way");
  p = good;
  p.steps[0].waits = {7};
  refused(p, "not under way");
}

}  // namespace
}  // namespace tessera::plan::deadlines_test
