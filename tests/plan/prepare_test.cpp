// A plan computes first what follows from weights alone, and keeps what the rest reads of it.
#include "plan/prepare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ir/builder.h"
#include "plan/footprint.h"
#include "plan/plan.h"

namespace tessera::plan::prepare_test {
namespace {

using namespace ir;

// x w, where w is half of a bucket, in bf16; `samples` rows.
Program product(std::int64_t samples, bool updates = false) {
  Builder b;
  const Var images = b.input(Input::batch, "images", {DType::bf16, {samples, 4}, {}});
  const Var bucket =
      b.input(Input::state, "decay", {DType::f32, {32}, {}}, {}, Role::weights, "decay");
  const Var half = b.emit1(Op::slice, Slice{0, 16, 16}, {bucket}, "half");
  const Var w = b.emit1(Op::reshape, Reshape{{4, 4}}, {half}, "w");
  const Var twice = b.emit1(Op::scale, Scale{2}, {w}, "twice");
  const Var low = b.emit1(Op::cast, Cast{DType::bf16}, {twice}, "low");
  b.output("y", b.contract("bi,io->bo", images, low, "y"));
  if (updates) b.output("new", b.emit1(Op::scale, Scale{0.5}, {bucket}, "new"), "decay");
  return b.take();
}

std::set<std::string> kept(const Plan& plan) {
  std::set<std::string> names;
  for (const Buffer& buffer : plan.persistent)
    if (buffer.name.starts_with("prepared.")) names.insert(buffer.name);
  return names;
}

TEST(Prepare, WhatFollowsFromWeightsAloneIsMadeOnce) {
  const Plan plan = lower(product(3), 0, {.packs = true});
  ASSERT_EQ(plan.prepared, 2u);  // the views take no step
  EXPECT_EQ(plan.steps[0].op, Op::scale);
  EXPECT_EQ(plan.steps[1].op, Op::cast);
  EXPECT_EQ(plan.steps[2].op, Op::contract);
  // A value that only the next of these steps reads need not stay.
  EXPECT_EQ(plan.steps[0].out[0].base, 0);
  EXPECT_GT(plan.steps[1].out[0].base, 0);
  EXPECT_EQ(kept(plan).size(), 1u);
  EXPECT_EQ(plan.memory.total(), plan.peak_bytes());
  EXPECT_DOUBLE_EQ(plan.cost.flops, 2.0 * 3 * 4 * 4);
}

TEST(Prepare, PlansForOtherBatchesShareIt) {
  const Target target{.packs = true};
  EXPECT_EQ(kept(lower(product(3), 0, target)), kept(lower(product(7), 0, target)));
}

TEST(Prepare, NothingIsKeptWhereWeightsChangeOrNobodyAsks) {
  EXPECT_EQ(lower(product(3, true), 0, {.packs = true}).prepared, 0u);
  EXPECT_EQ(lower(product(3), 0, {}).prepared, 0u);
  EXPECT_TRUE(kept(lower(product(3), 0, {})).empty());
}

TEST(Prepare, WeightsThatAreReadOnceRestOnTheHostWhereKernelsReachIt) {
  const Plan beside = lower(product(3), 0, {.packs = true}),
             aside = lower(product(3), 0, {.packs = true, .reaches_host = true});
  const auto weights = [](const Plan& plan) {
    return *std::ranges::find(plan.persistent, "decay", &Buffer::name);
  };
  EXPECT_EQ(weights(beside).home, Home::device);
  EXPECT_EQ(weights(aside).home, Home::host);
  EXPECT_EQ(aside.bytes_on(Home::host), weights(aside).bytes);
  EXPECT_EQ(aside.peak_bytes(), beside.peak_bytes() - weights(aside).bytes);
  EXPECT_EQ(aside.memory.total(), aside.peak_bytes());
  EXPECT_EQ(kept(aside), kept(beside));
  for (const Buffer& buffer : aside.persistent)
    EXPECT_EQ(buffer.home, buffer.name == "decay" ? Home::host : Home::device) << buffer.name;
  // A training, and whoever reads them in every run, keep them.
  EXPECT_EQ(lower(product(3, true), 0, {.packs = true, .reaches_host = true}).bytes_on(Home::host),
            0);
}

TEST(Prepare, WhatIsPackedIsReadOnceToo) {
  const PackedRule columns = [](Op op, const Attrs&, const std::vector<Type>& in, int operand) {
    return op == Op::contract && operand == 1 ? PackedForm{in[1].bytes(), "columns"} : PackedForm{};
  };
  const Plan plan = lower(product(3), 0, {.packs = true, .packed = columns, .reaches_host = true});
  for (const Buffer& buffer : plan.persistent)
    EXPECT_EQ(buffer.home, buffer.name.starts_with("packed.") ? Home::device : Home::host)
        << buffer.name;
}

// A plan that reads them in every run has them on the device, and so have the others then.
TEST(Prepare, PlansAgreeWhereWeightsRest) {
  Builder b;
  const Var bucket =
      b.input(Input::state, "decay", {DType::f32, {32}, {}}, {}, Role::weights, "decay");
  const Var x = b.input(Input::batch, "x", {DType::f32, {32}, {}});
  b.output("y", b.emit1(Op::add, Sig{"a,a->a"}, {x, bucket}, "y"));
  const Target target{.packs = true, .reaches_host = true};
  const Plan reads = lower(b.take(), 0, target), aside = lower(product(3), 0, target);
  for (const bool first : {false, true}) {
    Footprint room;
    room.add(first ? reads : aside);
    room.add(first ? aside : reads);
    EXPECT_EQ(room.persistent().at("decay").home, Home::device);
    EXPECT_EQ(room.bytes_on(Home::host), 0);
  }
}

// Executors pack behind the steps that are made once, so none of these may read a packed weight.
TEST(Prepare, WhatIsMadeOnceReadsNoPackedWeight) {
  Builder b;
  const Var images = b.input(Input::batch, "images", {DType::f32, {3, 4}, {}});
  const Type square{DType::f32, {4, 4}, {}};
  const Var left = b.input(Input::param, "left", square),
            right = b.input(Input::param, "right", square);
  const Var both = b.contract("ij,jo->io", left, right, "both");
  b.output("y", b.contract("bi,io->bo", images, both, "y"));
  const auto packed = [](Op op, const Attrs&, const std::vector<Type>& in, int operand) {
    return PackedForm{.bytes = op == Op::contract && operand == 1 ? in[1].bytes() : 0,
                      .layout = "columns"};
  };
  const Plan plan = lower(b.take(), 0, {.packs = true, .packed = packed});
  ASSERT_EQ(plan.prepared, 1u);
  EXPECT_FALSE(plan.steps[0].packed);
  EXPECT_TRUE(plan.steps[1].packed);
  EXPECT_EQ(plan.memory.total(), plan.peak_bytes());
}

}  // namespace
}  // namespace tessera::plan::prepare_test
