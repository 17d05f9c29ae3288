// Stages of a pipeline: the blocks of the models and what they cost, cuts against all others, by
// hand and by measured time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "base/check.h"
#include "base/rng.h"
#include "comm/comm.h"
#include "compile/stages.h"
#include "config/pipeline.h"

namespace tessera::run::stages_test {
namespace {

using Cut = std::vector<std::int64_t>;

std::int64_t parameters_of(const models::ModelConfig& m) {
  std::int64_t sum = 0;
  for (const models::Param& p : models::parameters(m)) sum += p.buffer ? 0 : ir::elements(p.shape);
  return sum;
}

TEST(Blocks, AddUpToTheModel) {
  for (const models::Preset& preset : models::presets()) {
    const std::vector<BlockCost> blocks = model_blocks(preset.config);
    ASSERT_EQ(static_cast<std::int64_t>(blocks.size()), models::block_count(preset.config))
        << preset.name;
    std::int64_t params = 0;
    double flops = 0;
    for (const BlockCost& b : blocks) {
      params += b.params;
      flops += b.flops;
      EXPECT_GT(b.params, 0) << preset.name << " " << b.name;
      EXPECT_GT(b.flops, 0) << preset.name << " " << b.name;
      EXPECT_EQ(b.ms, 0);
    }
    EXPECT_EQ(params, parameters_of(preset.config)) << preset.name;
    const double whole = ir::cost(forward_of_one_image(preset.config)).flops;
    EXPECT_NEAR(flops / whole, 1.0, 1e-12) << preset.name;
  }
}

TEST(Blocks, AreNamedByTheirScope) {
  const auto names = [](const char* preset) {
    std::vector<std::string> out;
    for (const BlockCost& b : model_blocks(models::preset(preset))) out.push_back(b.name);
    return out;
  };
  const std::vector<std::string> vit = names("vit_tiny_cifar"), swin = names("swin_t"),
                                 resnet = names("resnet50");
  EXPECT_EQ(vit.front(), "blocks.0");
  EXPECT_EQ(vit.back(), "blocks.11");
  EXPECT_EQ((std::vector<std::string>{swin.begin(), swin.begin() + 4}),
            (std::vector<std::string>{"stages.0.blocks.0", "stages.0.blocks.1", "stages.0.merge",
                                      "stages.1.blocks.0"}));
  EXPECT_EQ(swin.back(), "stages.3.blocks.1");
  EXPECT_EQ(resnet.front(), "layer1.0");
  EXPECT_EQ(resnet[3], "layer2.0");
  EXPECT_EQ(resnet.back(), "layer4.2");
}

// Every parameter's name says where it belongs, but for what stands before the first block and
// after the last.
TEST(Blocks, HoldTheirOwnParameters) {
  for (const char* preset : {"vit_tiny_cifar", "swin_micro", "resnet18_cifar", "resnet50"}) {
    const models::ModelConfig& m = models::preset(preset);
    const std::vector<BlockCost> blocks = model_blocks(m);
    std::map<std::string, std::int64_t> by_name;
    std::int64_t before = 0, after = 0;
    std::string last;
    for (const models::Param& p : models::parameters(m)) {
      if (p.buffer) continue;
      std::string block;
      if (m.family == "vit" && p.name.starts_with("encoder.layers.encoder_layer_"))
        block = "blocks." + p.name.substr(29, p.name.find('.', 29) - 29);
      if (m.family == "resnet" && p.name.starts_with("layer"))
        block = p.name.substr(0, p.name.find('.', 7));
      if (m.family == "swin" && p.name.starts_with("features.") &&
          !p.name.starts_with("features.0.")) {
        const std::int64_t number = p.name[9] - '0';
        const std::string stage = "stages." + std::to_string((number - 1) / 2);
        block = number % 2 == 0 ? stage + ".merge"
                                : stage + ".blocks." + p.name.substr(11, p.name.find('.', 11) - 11);
      }
      (block.empty() ? (last.empty() ? before : after) : by_name[block]) += ir::elements(p.shape);
      if (!block.empty()) last = block;
    }
    by_name[blocks.front().name] += before;
    by_name[blocks.back().name] += after;
    for (const BlockCost& b : blocks)
      EXPECT_EQ(b.params, by_name[b.name]) << preset << " " << b.name;
  }
}

// An equation that stands late in the program (running statistics) or leads nowhere near the images
// (bias tables, masks) is where its block is.
TEST(Blocks, FollowTheDataflow) {
  for (const char* preset : {"resnet18_cifar", "swin_micro"}) {
    const models::ModelConfig& m = models::preset(preset);
    const ir::Program program = forward_of_one_image(m);
    const std::vector<std::size_t> at = equation_blocks(program);
    const std::vector<BlockCost> blocks = model_blocks(m);
    int seen = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
      const ir::Op op = program.eqns[i].op;
      if (op != ir::Op::running_stats && op != ir::Op::bias_table && op != ir::Op::window_mask)
        continue;
      const std::string& scope = program.eqns[i].scope;
      EXPECT_TRUE(scope.starts_with(blocks[at[i]].name + ".") ||
                  (at[i] == 0 && scope.starts_with("stem")))
          << scope << " " << at[i];
      ++seen;
    }
    EXPECT_GT(seen, 3) << preset;
  }
}

struct Quality {
  double largest = 0, squares = 0;
};
Quality quality(const std::vector<double>& costs, const Cut& cut) {
  Quality q;
  std::size_t at = 0;
  for (const std::int64_t blocks : cut) {
    double sum = 0;
    for (std::int64_t i = 0; i < blocks; ++i) sum += costs.at(at++);
    q.largest = std::max(q.largest, sum);
    q.squares += sum * sum;
  }
  EXPECT_EQ(at, costs.size());
  return q;
}

// All cuts of n blocks into so many parts.
void all_cuts(std::int64_t n, int parts, Cut& open, const std::function<void(const Cut&)>& visit) {
  if (parts == 1) {
    open.push_back(n);
    visit(open);
    open.pop_back();
    return;
  }
  for (std::int64_t first = 1; n - first >= parts - 1; ++first) {
    open.push_back(first);
    all_cuts(n - first, parts - 1, open, visit);
    open.pop_back();
  }
}

TEST(Balance, NoOtherCutIsBetter) {
  std::uint64_t draw = 0;
  for (int round = 0; round < 300; ++round) {
    const int n = 1 + static_cast<int>(random_bits(Key{1}, draw++) % 10);
    const int parts = 1 + static_cast<int>(random_bits(Key{1}, draw++) %
                                           static_cast<std::uint64_t>(std::min(n, 5)));
    std::vector<double> costs;
    for (int i = 0; i < n; ++i) {
      const auto whole =
          static_cast<double>(random_bits(Key{1}, draw++) % 12);  // many ties, and zeros
      costs.push_back(round % 3 == 0 ? std::abs(normal(Key{2}, draw)) * 1e9 : whole);
    }
    const Cut cut = balance(costs, parts);
    ASSERT_EQ(static_cast<int>(cut.size()), parts);
    EXPECT_GE(*std::min_element(cut.begin(), cut.end()), 1);
    Quality best{1e300, 1e300};
    Cut open;
    all_cuts(n, parts, open, [&](const Cut& other) {
      const Quality q = quality(costs, other);
      const double slack = 1e-12 * best.largest;
      if (q.largest < best.largest - slack ||
          (q.largest <= best.largest + slack && q.squares < best.squares))
        best = q;
    });
    const Quality got = quality(costs, cut);
    EXPECT_LE(got.largest, best.largest * (1 + 1e-12)) << "round " << round;
    EXPECT_LE(got.squares, best.squares * (1 + 1e-11)) << "round " << round;
  }
}

TEST(Balance, TiesAndEdges) {
  EXPECT_EQ(balance(std::vector<double>(12, 1.0), 4), (Cut{3, 3, 3, 3}));
  EXPECT_EQ(balance(std::vector<double>(12, 1.0), 5), (Cut{2, 2, 2, 3, 3}));
  EXPECT_EQ(balance({5, 1, 1, 1, 1}, 3),
            (Cut{1, 2, 2}));  // the largest part is 5 whatever the others do
  EXPECT_EQ(balance({0, 0, 0}, 2), (Cut{1, 2}));
  EXPECT_EQ(balance({3}, 1), (Cut{1}));
  EXPECT_EQ(balance({1, 2, 3}, 3), (Cut{1, 1, 1}));
  EXPECT_EQ(balance(std::vector<double>(1024, 0.1), 512), Cut(512, 2));
  EXPECT_THROW(balance({1, 2}, 3), Error);
  EXPECT_THROW(balance({1, -2}, 1), Error);
  EXPECT_THROW(balance({1, std::nan("")}, 1), Error);
}

config::Config pipelined(const char* preset, std::int64_t pp) {
  config::Config c;
  c.model = models::preset(preset);
  c.parallel.pp = pp;
  c.run.threads = 1;
  return c;
}

TEST(Stages, ByHandParamsFlopsAndTime) {
  config::Config c = pipelined("vit_tiny_cifar", 4);
  EXPECT_EQ(blocks_per_stage(c), (Cut{3, 3, 3, 3}));
  c.parallel.stages = {{1, 2, 4, 5}, ""};
  EXPECT_EQ(blocks_per_stage(c), (Cut{1, 2, 4, 5}));
  EXPECT_EQ(blocks_per_stage(pipelined("vit_tiny_cifar", 1)), (Cut{12}));
  c.parallel.stages = {{}, "time"};
  std::vector<double> ms(12, 1.0);
  ms[0] = 6;
  EXPECT_EQ(blocks_per_stage(c, ms), (Cut{1, 3, 4, 4}));
  c = pipelined("resnet50", 2);
  const Cut flops = blocks_per_stage(c);
  c.parallel.stages = {{}, "params"};
  const Cut params = blocks_per_stage(c);
  EXPECT_LT(flops[0],
            params[0]);  // most of a ResNet's parameters are at its end, its FLOPs are spread
  c.parallel.stages = {{}, ""};
  EXPECT_EQ(blocks_per_stage(c), flops);
  c = pipelined("vit_tiny_cifar", 3);
  c.parallel.schedule = "interleaved";
  c.parallel.chunks = 2;
  EXPECT_EQ(blocks_per_stage(c), (Cut{2, 2, 2, 2, 2, 2}));
  c = pipelined("swin_t", 1);
  c.parallel.segments = 15;
  EXPECT_EQ(blocks_per_stage(c), Cut(15, 1));
}

TEST(Stages, ErrorsSayWhatIsWrong) {
  const auto says = [](const config::Config& c) -> std::string {
    try {
      blocks_per_stage(c);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind, ErrorKind::usage);
      return e.what();
    }
    return "(accepted)";
  };
  config::Config c = pipelined("vit_tiny_cifar", 13);
  EXPECT_NE(says(c).find("more stages than the 12 blocks"), std::string::npos) << says(c);
  c = pipelined("vit_tiny_cifar", 2);
  c.parallel.stages = {{1, 2, 3}, ""};
  EXPECT_NE(says(c).find("parallel.stages has 3 numbers, but there are 2 stages"),
            std::string::npos)
      << says(c);
  EXPECT_NE(says(c).find("adds up to 6 blocks, but the model has 12"), std::string::npos)
      << says(c);
  c.parallel.stages = {{}, "time"};
  EXPECT_NE(says(c).find("needs measured blocks"), std::string::npos) << says(c);
}

// No times are asserted: every block took some, and the ranks agree on the cut.
TEST(Stages, AreMeasuredOnceForAllRanks) {
  for (const char* preset : {"vit_micro", "swin_micro", "resnet_micro_cifar"}) {
    config::Config c = pipelined(preset, 2);
    c.parallel.stages = {{}, "time"};
    c.batch = {8, 4, 2};
    c.data.mixup = 0.2;
    const std::vector<double> ms = measure_blocks(c);
    ASSERT_EQ(static_cast<std::int64_t>(ms.size()), models::block_count(c.model));
    for (const double t : ms) EXPECT_GT(t, 0) << preset;
    EXPECT_EQ(c.parallel.pp, 2);
    std::vector<config::Config> ranks(2, c);
    comm::run_local(2, [&](comm::Comm& world) {
      settle_stages(ranks[static_cast<std::size_t>(world.rank())], &world);
    });
    EXPECT_EQ(ranks[0].parallel.stages, ranks[1].parallel.stages);
    EXPECT_EQ(ranks[0].parallel.stages.word, "time");
    const std::vector<double>& list = ranks[0].parallel.stages.list;
    ASSERT_EQ(list.size(), 2u);
    EXPECT_EQ(std::accumulate(list.begin(), list.end(), 0.0), static_cast<double>(ms.size()));
    EXPECT_EQ(blocks_per_stage(ranks[1]), (Cut{std::llround(list[0]), std::llround(list[1])}));
    config::Config plain = c;
    plain.parallel.stages.word = "flops";
    settle_stages(plain, nullptr);
    EXPECT_TRUE(plain.parallel.stages.list.empty());
  }
}

}  // namespace
}  // namespace tessera::run::stages_test
