// How sharding passes through equations: what follows from the operands' places, and what the
// verifier refuses, each with its words. Convention: one small placed program, and one line at a
// time after it.
#include <gtest/gtest.h>

#include "ir/placement.h"
#include "ir/texts.h"

namespace tessera::ir::placement_test {
namespace {

using test::message_of;

// A two-layer perceptron under Megatron's cut: `part` is a partial sum on tp.
constexpr const char* placed = R"(program t mesh(pp=2:stage, dp=2:data, sp=2:sequence, tp=2:model)
  input x : f32[4,6,8]{dp:S0} batch "x"
  input labels : i32[4]{dp:S0} batch "labels"
  input up : f32[16,8]{tp:S0} param "up" (mlp,dim)
  input down : f32[8,16]{tp:S1} param "down" (dim,mlp)
  input bias : f32[8] param "bias" (dim)
  input flat : f32[64]{dp:S0 tp:S0} state "flat" (bucket)
  input image : f32[2,4,4,6]{tp:S3} batch "image"
  input filters : f32[3,3,6,5]{tp:S2} param "filters"
  input channel : f32[5] param "channel"
  input first : f32[8]{pp:@0} batch "first"
  input second : f32[8]{pp:@1} batch "second"
  h : f32[4,6,16]{dp:S0 tp:S2} = contract sig="btc,fc->btf" x up
  part : f32[4,6,8]{dp:S0 tp:P} = contract sig="btf,cf->btc" h down
  tokens : f32[4,6,8]{dp:S0 sp:S1} = own axis="sp" dim=1 x
  partial.bias : f32[8]{tp:P} = once axis="tp" bias
  pile : f32[2,4,6,16]{dp:S1 tp:S3} = stack h h
)";

struct Row {
  const char* line;
  const char* words = "";
};

Program with(const Row& row) { return parse(std::string(placed) + "  " + row.line + "\n"); }

TEST(Placement, TheSoundProgramIsSound) { EXPECT_NO_THROW(verify(parse(placed))); }

TEST(Placement, WhatFollowsFromTheOperands) {
  const Row table[] = {
      {"r : f32[4,6,16]{dp:S0 tp:S2} = gelu h"},
      {"r : f32[4,16,6]{dp:S0 tp:S1} = transpose perm=[0,2,1] h"},
      {"r : f32[16]{dp:P tp:S0} = sum sig=\"btf->f\" h"},
      {"r : f32[]{dp:P tp:P} = sumsq h"},
      {"r : f32[4,6,8]{dp:S0 tp:P} = scale factor=2 part"},                       // linear
      {"r : f32[4,6,8]{dp:S0 tp:P} = add sig=\"btc,btc->btc\" part part"},        // P + P
      {"r : f32[4,6,8]{dp:S0 tp:P} = add sig=\"btc,c->btc\" part partial.bias"},  // one rank's bias
      {"r : f32[4,6,8]{dp:S0 tp:P} = contract sig=\"btf,cf,c->btc\" h down partial.bias"},  // the
                                                                                            // same,
                                                                                            // fused
      {"r : f32[4,6,8]{dp:S0 tp:P} = mul sig=\"btc,c->btc\" part bias"},   // linear in one operand,
                                                                           // the other whole
      {"r : f32[4,1,8]{dp:S0 sp:P} = slice dim=1 start=0 size=1 tokens"},  // the class token: its
                                                                           // owner contributes
      {"r : f32[4,6,8]{dp:S0 tp:S2} = constant shape=[4,6,8]"},            // made in parts
      {"r : f32[3,8]{sp:S0} = broadcast sig=\"c->bc\" shape=[3,8] bias"},  // a dim that only the
                                                                           // result has
      {"r : f32[4,6,8]{dp:S0 tp:P} = mark label=\"debug\" part"},          // an identity
      {"r : f32[4,6,16]{dp:S0 tp:S2}, s : f32[4,6,16]{dp:S0 tp:S2} = unstack pile"},  // dims move
                                                                                      // up and down
                                                                                      // with their
                                                                                      // cuts
      {"r : f32[4,48]{dp:S0} = reshape shape=[4,48] x"},        // dims that stay dims
      {"r : f32[2,4,4,5]{tp:P} = conv pad=1 image filters"},    // a sum over input channels
      {"r : f32[8]{pp:@1} = add sig=\"c,c->c\" second bias"},   // a stage's, and everybody's
      {"r : f32[8]{pp:@1} = transfer axis=\"pp\" to=1 first"},  // from stage to stage
      {"r : f32[8]{pp:P} = widen axis=\"pp\" second"},          // a stage's share of a sum
      {"r : f32[3]{pp:@1} = constant shape=[3]"},               // made by one stage alone
      {"_ = all_reduce axis=\"tp\" part"},                      // wanted by nobody
  };
  for (const Row& row : table) {
    SCOPED_TRACE(row.line);
    EXPECT_NO_THROW(verify(with(row)));
  }
}

TEST(Placement, TheVerifierNamesWhatIsMissing) {
  const Row table[] = {
      // a collective that is missing
      {"r : f32[4,6,8]{dp:S0} = gelu part",
       "gelu cannot work on operands placed like these on tp; a collective is missing"},
      {"r : f32[4,6,8]{dp:S0}, _, _ = layer_norm part bias bias",
       "layer_norm cannot work on operands placed like these on tp"},
      {"r : f32[4,6,8]{dp:S0 tp:P} = add sig=\"btc,btc->btc\" part x",
       "add cannot work on operands placed like these on tp"},
      {"r : f32[4,6,8]{dp:S0 tp:P} = add sig=\"btc,c->btc\" part bias",
       "add cannot work on operands placed like these on tp"},
      {"r : f32[4,6,8]{dp:S0 tp:P} = mul sig=\"btc,btc->btc\" part part",
       "mul cannot work on operands placed like these on tp"},
      {"r : f32[]{dp:P tp:P} = sumsq part",
       "sumsq cannot work on operands placed like these on tp"},
      {"r : f32[4,6,8]{dp:S0} = add sig=\"btc,btc->btc\" tokens x",
       "add cannot work on operands placed like these on sp"},
      {"r : f32[4,6,16]{dp:S0} = softmax h",
       "softmax cannot work on operands placed like these on tp"},
      {"r : f32[4,96]{dp:S0} = reshape shape=[4,96] h",
       "reshape cannot work on operands placed like these on tp"},
      {"r : f32[32] = view shape=[32] flat",
       "view cannot work on operands placed like these on dp"},
      {"r : f32[4,6,17]{dp:S0 tp:S2} = pad dim=2 after=1 h",
       "pad cannot work on operands placed like these on tp"},
      // a partial sum under a bias, an activation or a relu: each rank would add or bend its share
      {"r : f32[4,6,8]{dp:S0 tp:P} = contract sig=\"btf,cf,c->btc\" h down bias",
       "contract cannot work on operands placed like these on tp"},
      {"r : f32[4,6,8]{dp:S0 tp:P}, _ = contract sig=\"btf,cf->btc\" act=\"gelu\" h down",
       "contract cannot work on operands placed like these on tp"},
      {"r : f32[4,6,16]{dp:S0 tp:P}, _ = contract sig=\"btc,cf->btf\" act=\"gelu\" part down",
       "contract cannot work"},
      {"r : f32[2,4,4,5]{tp:P} = conv pad=1 image filters channel channel",
       "conv cannot work on operands placed like these on tp"},
      {"r : f32[2,4,4,5]{tp:P} = conv pad=1 relu=true image filters",
       "conv cannot work on operands placed like these on tp"},
      // a result that says something else than what comes out
      {"r : f32[4,6,16]{dp:S0} = gelu h", "r is not placed on tp as gelu makes it"},
      {"r : f32[4,6,16]{dp:S0 tp:S1} = gelu h", "r is not placed on tp as gelu makes it"},
      {"r : f32[16]{tp:S0} = sum sig=\"btf->f\" h", "r is not placed on dp as sum makes it"},
      {"r : f32[4,6,8]{dp:S0} = mark label=\"residual\" part",
       "r is not placed on tp as mark makes it"},
      {"r : f32[3]{tp:P} = constant shape=[3]", "r is not placed on tp as constant makes it"},
      {"r : f32[3,8]{sp:S1} = broadcast sig=\"c->bc\" shape=[3,8] bias",
       "r is not placed on sp as broadcast makes it"},
      // collectives from or to another place
      {"r : f32[4,6,8] = all_reduce axis=\"tp\" x",
       "all_reduce does not lead from its operand's place on dp to its result's"},
      {"r : f32[4,6,8]{dp:S0} = all_reduce axis=\"tp\" x",
       "all_reduce does not lead from its operand's place on tp to its result's"},
      {"r : f32[4,6,16]{dp:S0} = all_gather axis=\"tp\" dim=1 h",
       "all_gather does not lead from its operand's place on tp"},
      {"r : f32[4,6,8]{dp:S0 tp:S1} = reduce_scatter axis=\"tp\" dim=2 part",
       "reduce_scatter does not lead"},
      {"r : f32[4,6,16]{dp:S0 tp:S2} = all_to_all axis=\"tp\" dim=2 from=2 h",
       "all_to_all does not lead"},
      {"r : f32[4,6,8]{dp:S0} = own axis=\"dp\" dim=0 x",
       "own does not lead from its operand's place on dp"},
      {"r : f32[4,6,8]{dp:S0 tp:P} = once axis=\"tp\" part",
       "once does not lead from its operand's place on tp"},
      {"r : f32[4,6,16]{dp:S0 tp:P} = widen axis=\"tp\" dim=1 h",
       "widen does not lead from its operand's place on tp"},
      {"r : f32[4,6,8]{dp:S0} = all_reduce axis=\"ep\" x",
       "all_reduce is over ep, which is no axis of the mesh"},
      {"r : f32[4,6,8]{dp:S0} = all_reduce x", "all_reduce is over no axis"},
      {"r : f32[4,6,17]{dp:S0} = all_gather axis=\"tp\" dim=2 parts=[16,1] h",
       "a program with a mesh has global shapes"},
      // stages
      {"r : f32[8]{pp:@1} = add sig=\"c,c->c\" first second",
       "add cannot work on operands placed like these on pp"},
      {"r : f32[8] = gelu first", "r is not placed on pp as gelu makes it"},
      {"r : f32[8]{pp:@1} = gelu first", "r is not placed on pp as gelu makes it"},
      {"r : f32[8]{pp:@1} = transfer axis=\"pp\" to=1 second",
       "transfer does not lead from its operand's place on pp to its result's"},
      {"r : f32[8] = transfer axis=\"pp\" to=1 first",
       "transfer does not lead from its operand's place on pp to its result's"},
      {"r : f32[8] = all_reduce axis=\"pp\" first",
       "all_reduce does not lead from its operand's place on pp to its result's"},
      {"r : f32[8] = recv axis=\"pp\" shape=[8]", "recv is one rank's half of a transfer"},
      // the later axis cuts first, so the earlier one's cut is undone first
      {"r : f32[64]{dp:S0} = all_gather axis=\"tp\" dim=0 flat",
       "over tp reaches through the cut that dp made in the same dim of flat"},
      {"r : f32[4,6,8]{dp:S0 tp:S0} = own axis=\"tp\" dim=0 x",
       "over tp reaches through the cut that dp made in the same dim of r"},
  };
  for (const Row& row : table) {
    SCOPED_TRACE(row.line);
    EXPECT_SAYS(message_of([&] { verify(with(row)); }), row.words);
  }
}

// Letters: '*' written out, pins, and the value before an activation, which lies like the result.
TEST(Placement, LettersNameEveryDim) {
  const Type x{DType::f32, {2, 5, 7}, {}}, c{DType::f32, {7}, {}}, stat{DType::f32, {2, 5}, {}};
  const Letters norm =
      letters_of(Op::layer_norm, Norm{}, std::vector{x, c, c}, std::vector{x, stat, stat});
  EXPECT_EQ(norm.in, (std::vector<std::string>{"ABc", "c", "c"}));
  EXPECT_EQ(norm.out, (std::vector<std::string>{"ABc", "AB", "AB"}));
  EXPECT_NE(norm.pinned.find('c'), std::string::npos);
  const Type w{DType::f32, {9, 7}, {}}, y{DType::f32, {2, 5, 9}, {}};
  const Letters fused = letters_of(Op::contract, Contract{"btc,fc->btf", "gelu", {}},
                                   std::vector{x, w}, std::vector{y, y});
  EXPECT_EQ(fused.out, (std::vector<std::string>{"btf", "btf"}));
  const Letters moved = letters_of(Op::reshape, Reshape{{2, 35}}, std::vector{x},
                                   std::vector{Type{DType::f32, {2, 35}, {}}});
  EXPECT_EQ(moved.in[0][0], moved.out[0][0]);
  EXPECT_EQ(moved.pinned.size(), 3u);
}

// Statistics that belong to all of a batch stay whole although the batch is cut (follows); with a
// group per rank they are cut with it.
TEST(Placement, StatisticsFollow) {
  const char* head =
      "program t mesh(dp=2:data)\n  input x : f32[4,3,3,5]{dp:S0} batch \"x\"\n  input c : f32[5] "
      "param \"c\"\n";
  EXPECT_NO_THROW(verify(parse(std::string(head) + "  input s : f32[1,5] state \"s\"\n" +
                               "  y : f32[4,3,3,5]{dp:S0}, m : f32[1,5], r : f32[1,5] = batch_norm "
                               "samples=4 pixels=9 x s s c c c\n")));
  EXPECT_NO_THROW(verify(parse(
      std::string(head) + "  s : f32[2,5]{dp:S0}, q : f32[2,5]{dp:S0} = moments groups=2 x c\n" +
      "  y : f32[4,3,3,5]{dp:S0}, m : f32[2,5]{dp:S0}, _ = batch_norm groups=2 samples=4 pixels=9 "
      "x s q c c c\n")));
}

}  // namespace
}  // namespace tessera::ir::placement_test
