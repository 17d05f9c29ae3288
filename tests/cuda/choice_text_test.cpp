// A table of choices is held as text: every field of a product or a convolution is in its key,
// and algorithms come back as they were, or not at all.
#include "exec/cuda/products/choice_text.h"

#include <gtest/gtest.h>

#include <set>

namespace tessera::exec::cuda::choice_text_test {
namespace {

TEST(ChoiceText, EveryFieldOfAProductIsInItsKey) {
  const Product plain{.bias = true};
  std::set<std::string> keys = {key_of(plain)};
  std::size_t changes = 0;
  const auto changed = [&](const auto& change) {
    Product other = plain;
    change(other);
    EXPECT_TRUE(keys.insert(key_of(other)).second) << key_of(other);
    ++changes;
  };
  changed([](Product& p) { p.factors = ir::DType::bf16; });
  changed([](Product& p) { p.result = ir::DType::bf16; });
  changed([](Product& p) { p.tf32 = true; });
  changed([](Product& p) { p.rows = 2; });
  changed([](Product& p) { p.cols = 2; });
  changed([](Product& p) { p.depth = 2; });
  changed([](Product& p) { p.batches = 2; });
  for (const auto side : {&Product::left, &Product::right}) {
    changed([&](Product& p) { (p.*side).outer = 7; });
    changed([&](Product& p) { (p.*side).depth = 7; });
    changed([&](Product& p) { (p.*side).batch = 7; });
  }
  changed([](Product& p) { p.d.col = 7; });
  changed([](Product& p) { p.d.batch = 7; });
  changed([](Product& p) { p.bias = false; });
  changed([](Product& p) { p.bias_batch = 7; });
  changed([](Product& p) { p.gelu = true; });
  changed([](Product& p) { p.before_gelu = true; });
  changed([](Product& p) { p.workspace = 7; });
  for (const auto align : {&Product::align_left, &Product::align_right, &Product::align_result})
    changed([&](Product& p) { p.*align = 8; });
  EXPECT_EQ(keys.size(), changes + 1);
}

TEST(ChoiceText, EveryFieldOfAConvolutionIsInItsKey) {
  const DnnConv plain;
  std::set<std::string> keys = {key_of(plain)};
  const auto changed = [&](const auto& change) {
    DnnConv other = plain;
    change(other);
    EXPECT_TRUE(keys.insert(key_of(other)).second) << key_of(other);
  };
  changed([](DnnConv& c) { c.pass = ConvPass::input_grad; });
  changed([](DnnConv& c) { c.pass = ConvPass::filter_grad; });
  changed([](DnnConv& c) { c.dtype = ir::DType::bf16; });
  changed([](DnnConv& c) { c.tf32 = true; });
  changed([](DnnConv& c) { c.any_order = true; });
  for (const auto size :
       {&DnnConv::b, &DnnConv::h, &DnnConv::w, &DnnConv::c, &DnnConv::p, &DnnConv::q, &DnnConv::o,
        &DnnConv::k, &DnnConv::l, &DnnConv::stride, &DnnConv::pad, &DnnConv::workspace,
        &DnnConv::align_images, &DnnConv::align_filters, &DnnConv::align_results})
    changed([&](DnnConv& c) { c.*size = 77; });
  EXPECT_EQ(keys.size(), 21u);
}

TEST(ChoiceText, BytesComeBack) {
  const std::vector<std::byte> bytes = {std::byte{0}, std::byte{0xff}, std::byte{0x1a}};
  EXPECT_EQ(to_hex(bytes), "00ff1a");
  EXPECT_EQ(from_hex("00ff1a", 3), bytes);
  for (const char* bad : {"", "00ff1", "00ff1a00", "00fg1a", "00FF1A", "0x0f1a"})
    EXPECT_FALSE(from_hex(bad, 3)) << bad;
}

TEST(ChoiceText, EnginesComeBack) {
  const DnnEngine plain{.index = 12, .knobs = {}}, set{.index = 0, .knobs = {{2, 1}, {17, -3}}};
  EXPECT_EQ(to_text(set), "engine 0 knobs 2=1 17=-3");
  for (const DnnEngine& engine : {plain, set}) EXPECT_EQ(engine_from(to_text(engine)), engine);
  std::string many = "engine 1 knobs";
  for (std::size_t i = 0; i < most_knobs; ++i) many += " 1=1";
  EXPECT_TRUE(engine_from(many));
  EXPECT_FALSE(engine_from(many + " 1=1"));
  for (const char* bad :
       {"", "engine", "engine x knobs", "engine -1 knobs", "engine 1", "engine 1 knobs 2",
        "engine 1 knobs 2=", "engine 1 knobs 2=3x", "engine 1 knobs  2=3",
        "engine 99999999999999999999 knobs", "engine 1 knobs 2=99999999999999999999"})
    EXPECT_FALSE(engine_from(bad)) << bad;
}

}  // namespace
}  // namespace tessera::exec::cuda::choice_text_test
