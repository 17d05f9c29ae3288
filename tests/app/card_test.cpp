// A card from outside: what is said and returned where it cannot be used or is lost, the verbs
// beside train, and a job of processes of which one has a card.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "app/binary.h"
#include "pages/document.h"

namespace tessera::test::card_test {
namespace {

json facts() { return json::parse(run("version --verbose --json").out, nullptr, false); }

// A variable for the processes that are started while this lives.
class With {
 public:
  With(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~With() { ::unsetenv(name_); }
  With(const With&) = delete;
  With& operator=(const With&) = delete;

 private:
  const char* name_;
};

class OnACard : public testing::Test {
 protected:
  void SetUp() override {
    const json found = facts();
    if (!found.is_object() || !found.contains("card 0"))
      GTEST_SKIP() << "no card here: " << found.dump();
  }
};
class OnCardBad : public OnACard {};
class OnCardVerbs : public OnACard {};
class OnCardMixedJobs : public OnACard {};

TEST_F(OnCardVerbs, TheReadmesBlocksForACardWorkWhenPasted) {
  const fs::path folder = checkout_like("readme_card");
  int pasted = 0;
  for (const CommandBlock& block : command_blocks(fs::path(TESSERA_SOURCE_DIR) / "README.md"))
    for (const std::string& command : block.commands) {
      if (block.when != CommandBlock::When::card) continue;
      const Pasted done = paste(folder, scaled_command(block, command));
      EXPECT_EQ(done.code, 0) << command << "\n" << done.output;
      ++pasted;
    }
  EXPECT_GE(pasted, 2);
}

void expect_one_error(const Result& r, int code, const std::string& words) {
  EXPECT_EQ(r.code, code) << r.err;
  EXPECT_NE(r.err.find(words), std::string::npos) << r.err;
  EXPECT_EQ(r.err.find("error:"), r.err.rfind("error:")) << r.err;
  EXPECT_TRUE(r.out.empty()) << r.out;
}

// The driver is asked in one place, which can be told what it answers: no card is needed.
TEST(BadCards, ADriverThatIsTooOldSaysWhichIsNeeded) {
  const json found = facts();
  if (!found.is_object() || !found.contains("cuda runtime"))
    GTEST_SKIP() << "this build has no CUDA executor";
  const With too_old("TESSERA_CUDA_FAIL", "look for a card:1:803");
  const fs::path out = scratch() / "old_driver";
  const Result r = run("train" + tiny + "--steps 1 --device cuda --out " + out.string());
  expect_one_error(r, 10, " or newer, found one for ");
  EXPECT_NE(r.err.find("install a newer driver"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("--device cpu"), std::string::npos) << r.err;
  const Result version = run("version --verbose --json");
  EXPECT_EQ(version.code, 0) << version.err;  // what looks at the machine goes on
  EXPECT_NE(version.out.find("or newer"), std::string::npos) << version.out;
}

// The same command goes on from the newest checkpoint, to the bits of a run that lost nothing.
TEST_F(OnCardBad, ACardThatIsLostEndsTheRunAndTheNextGoesOn) {
  const std::string arguments =
      "train" + tiny +
      "--device cuda --epochs 4 --set model.dropout=0.1 --set run.eval_every=0 --set "
      "checkpoint.every=2 --quiet --out ";
  const fs::path whole = scratch() / "card_whole", parts = scratch() / "card_parts";
  const Result alone = run(arguments + whole.string() + " --fresh");
  ASSERT_EQ(alone.code, 0) << alone.err;
  {
    const With lost("TESSERA_CUDA_FAIL", "launch a graph:5:214");
    const Result r = run(arguments + parts.string() + " --fresh");
    expect_one_error(r, 10, "the card was lost: could not launch a graph");
    EXPECT_NE(r.err.find("goes on from its newest checkpoint"), std::string::npos) << r.err;
  }
  const std::size_t before = losses(parts).size();
  EXPECT_GE(before, 2u);
  EXPECT_LT(before, 12u);
  const Result rest = run(arguments + parts.string());
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(losses(parts), losses(whole));
  EXPECT_EQ(losses(parts).size(), 12u);
  EXPECT_TRUE(read(parts / "weights.safetensors") == read(whole / "weights.safetensors"));
}

TEST_F(OnCardBad, TooLittleMemoryIsSaidWithNumbers) {
  const With small("TESSERA_CUDA_MEMORY_MB", "64");
  const Result r =
      run("train --model vit_b_16 --set data.train_size=8 --set data.test_size=8 --global-batch 8 "
          "--steps 1 --quiet --device cuda --fresh --out " +
          (scratch() / "card_small").string());
  expect_one_error(r, 8, "the card has");
  EXPECT_NE(r.err.find("asked for: weights and state "), std::string::npos) << r.err;
}

TEST_F(OnCardBad, ACardWithoutBf16IsRefused) {
  const With turing("TESSERA_CUDA_ARCH", "75");
  const Result r =
      run("train" + tiny + "--steps 1 --quiet --device cuda --dtype bf16 --fresh --out " +
          (scratch() / "card_75").string());
  expect_one_error(r, 10, "compute capability 7.5");
  EXPECT_NE(r.err.find("--dtype f16"), std::string::npos) << r.err;
}

std::vector<json> lines(const std::string& out) {
  std::vector<json> all;
  std::istringstream text(out);
  for (std::string line; std::getline(text, line);) all.push_back(json::parse(line));
  return all;
}

// The numbers of the CPU, from weights that the card trained.
TEST_F(OnCardVerbs, EvalAndPredictSayWhatTheCpuSays) {
  const std::string weights = (scratch() / "card_weights").string(),
                    picture = TESSERA_SOURCE_DIR "/tests/golden/disc.png";
  for (const std::string model : {"vit_micro", "swin_micro", "resnet_micro_cifar"}) {
    SCOPED_TRACE(model);
    const Result trained =
        run("train --model " + model +
            " --set data.train_size=64 --set data.test_size=32 --global-batch 32 --steps 3 --quiet "
            "--device cuda --fresh --out " +
            weights);
    ASSERT_EQ(trained.code, 0) << trained.err;
    const std::string eval =
        "eval --json --data synthetic --test-size 45 --batch 16 --tta flip --weights " + weights;
    const Result card = run(eval + " --device cuda"), cpu = run(eval);
    ASSERT_EQ(card.code + cpu.code, 0) << card.err << cpu.err;
    const json a = json::parse(card.out), b = json::parse(cpu.out);
    EXPECT_EQ(a["images"], 45);
    EXPECT_NEAR(a["loss"].get<double>(), b["loss"].get<double>(), 1e-3);
    const std::string predict = "predict --weights " + weights + " " + picture;
    const Result seen = run(predict + " --device cuda"), wanted = run(predict);
    ASSERT_EQ(seen.code + wanted.code, 0) << seen.err << wanted.err;
    const std::vector<json> got = lines(seen.out), want = lines(wanted.out);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_NEAR(got[0]["top"][0]["probability"].get<double>(),
                want.at(0)["top"][0]["probability"].get<double>(), 1e-3);
  }
}

TEST_F(OnCardVerbs, BenchesMeasureTheCard) {
  for (const std::string verb : {"infer", "train", "ops", "layers"}) {
    const Result r =
        run("bench " + verb + " --batch 4 --model vit_micro --repeats 2 --device cuda --json");
    ASSERT_EQ(r.code, 0) << verb << "\n" << r.err;
    EXPECT_TRUE(json::parse(r.out).is_object()) << verb;
  }
}

// Weights in eight bits' training come back as f32: any verb reads them, and evaluates in fp8.
TEST_F(OnCardVerbs, ARunInEightBitsIsEvaluated) {
  const fs::path out = scratch() / "card_fp8";
  const std::string train =
      "train --model vit_micro --set data.train_size=128 --set data.test_size=64 --global-batch 32 "
      "--epochs 2 --quiet --device cuda --dtype fp8 --out " +
      out.string();
  const Result r = run(train + " --fresh");
  ASSERT_EQ(r.code, 0) << r.err;
  const fs::path eight = scratch() / "card_fp8.safetensors";
  const Result q = run("quantize --dtype fp8 --device cuda --data synthetic --weights " +
                       out.string() + " --out " + eight.string());
  ASSERT_EQ(q.code, 0) << q.err;
  const auto loss = [&](const std::string& how, const fs::path& weights) {
    const Result e =
        run("eval --json --data synthetic --test-size 64 --weights " + weights.string() + how);
    EXPECT_EQ(e.code, 0) << how << e.err;
    return e.code == 0 ? json::parse(e.out)["loss"].get<double>() : 0;
  };
  const double plain = loss(" --dtype f32", out);
  EXPECT_GT(plain, 0);
  EXPECT_NEAR(loss(" --device cuda --dtype bf16", out), plain, 0.02 * plain);
  EXPECT_NEAR(loss(" --device cuda --dtype fp8", out), plain, 0.05 * plain);
  EXPECT_NEAR(loss(" --device cuda", eight), plain, 0.05 * plain);  // it says that it is quantised
}

// One rank on the card and one on cores, each a process of its own.
TEST_F(OnCardMixedJobs, HaveTheLossesOfOneRank) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const std::string arguments =
      "train --model vit_micro --set model.depth=1 --set model.head_init=normal --set "
      "data.train_size=64 --set data.test_size=20 --global-batch 16 --epochs 1 --quiet --threads 1 "
      "--fresh --out ";
  const fs::path one = scratch() / "mixed_one";
  ASSERT_EQ(run(arguments + one.string()).code, 0);
  for (const std::string devices : {"cuda,cpu", "cpu,cuda"}) {
    const fs::path two = scratch() / ("mixed_" + devices);
    const Result r =
        run(arguments + two.string() + " --np 2 --zero 1 --comm mpi --device " + devices);
    ASSERT_EQ(r.code, 0) << devices << "\n" << r.err;
    const auto a = lines_of(one, "step"), b = lines_of(two, "step");
    ASSERT_EQ(a.size(), 4u);
    ASSERT_EQ(b.size(), 4u) << devices;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double loss = a[i]["loss"].get<double>(), norm = a[i]["grad_norm"].get<double>();
      EXPECT_NEAR(b[i]["loss"].get<double>(), loss, 1e-4 * loss) << devices << ", step " << i + 1;
      EXPECT_NEAR(b[i]["grad_norm"].get<double>(), norm, 1e-4 * norm)
          << devices << ", step " << i + 1;
    }
    const json summary = json::parse(read(two / "summary.json"));
    EXPECT_EQ(summary["ranks"][0]["device"], devices.substr(0, devices.find(',')));
    EXPECT_EQ(summary["world"], 2);
  }
}

}  // namespace
}  // namespace tessera::test::card_test
