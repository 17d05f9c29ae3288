// A study turns these: the parts of a forward pass with and without fusion, a learning rate that
// follows the batch, images of any size, and the other keys of a grid, all from outside.
#include <gtest/gtest.h>

#include <cmath>

#include "app/binary.h"

namespace tessera::test::layers_test {
namespace {

TEST(Layers, Json) {
  for (const std::string model : {"vit_micro", "swin_micro", "resnet_micro_cifar"})
    for (const bool fuse : {true, false}) {
      const Result r = run("bench layers --json --repeats 2 --threads 1 --batch 2 --model " +
                           model + (fuse ? "" : " --set run.fuse=false"));
      ASSERT_EQ(r.code, 0) << r.err;
      EXPECT_TRUE(r.err.empty()) << r.err;
      const json b = json::parse(r.out);
      EXPECT_EQ(b["model"], model);
      EXPECT_EQ(b["batch"], 2);
      EXPECT_EQ(b["threads"], 1);
      EXPECT_EQ(b["fused"], fuse);
      EXPECT_EQ(b["runs"], 2);
      EXPECT_GT(b["layers"].get<int>(), 1);
      EXPECT_GT(b["whole_s"]["median"].get<double>(), 0);
      EXPECT_GT(b["gflops"].get<double>(), 0);
      ASSERT_EQ(b["busy"].size(), 1u);
      EXPECT_GT(b["busy"][0].get<double>(), 0);
      EXPECT_LE(b["busy"][0].get<double>(), 1);
      EXPECT_EQ(b.contains("attention"), model != "resnet_micro_cifar");
      double sum = 0, shares = 0, attention = 0;
      for (const json& part : b["parts"]) {
        const double seconds = part["seconds"], share = part["share"];
        EXPECT_LE(part["least"].get<double>(), seconds) << part;
        EXPECT_GE(part["most"].get<double>(), seconds) << part;
        sum += seconds * part["count"].get<double>();
        shares += share;
        if (part["name"].get<std::string>().starts_with("msa.")) attention += share;
      }
      EXPECT_EQ(b["parts"].back()["name"], "rest");
      EXPECT_NEAR(sum / b["total_s"].get<double>(), 1, 1e-9) << model;
      EXPECT_NEAR(shares, 1, 1e-9) << model;
      if (!b.contains("attention")) continue;
      EXPECT_NEAR(b["attention"]["share"].get<double>(), attention, 1e-9);
      EXPECT_GT(b["attention"]["flops_share"].get<double>(), 0.1);
      EXPECT_LT(b["attention"]["flops_share"].get<double>(), 0.6);
    }
}

// A thread that has nothing to do is not busy, and is shown.
TEST(Layers, EveryThreadIsShown) {
  const json b = json::parse(
      run("bench layers --json --repeats 3 --threads 3 --batch 8 --model vit_micro").out);
  ASSERT_EQ(b["busy"].size(), 3u);
  double all = 0;
  for (const json& share : b["busy"]) all += share.get<double>();
  EXPECT_GT(all, 0);
  const Result text = run("bench layers --repeats 1 --threads 2 --batch 1 --model vit_micro");
  EXPECT_NE(text.out.find("threads were busy for so much of the whole pass: 0 "), std::string::npos)
      << text.out;
}

TEST(Layers, Table) {
  const Result fused = run("bench layers --repeats 1 --threads 1 --batch 1 --model vit_micro");
  for (const char* words :
       {"vit_micro 32x32, batch 1, f32, 1 thread, fused kernels", "msa.scores+softmax+values",
        "residual_1+ln_2", "rest", "attention (all msa rows) takes",
        "the whole pass, timed from outside", "GFLOP/s"})
    EXPECT_NE(fused.out.find(words), std::string::npos) << words << "\n" << fused.out << fused.err;
  const Result apart =
      run("bench layers --repeats 1 --threads 1 --batch 1 --model vit_micro --set run.fuse=false");
  for (const char* words : {"every equation its own kernel", "msa.qkv ", "msa.scores ",
                            "msa.softmax ", "msa.values ", "ln_2 "})
    EXPECT_NE(apart.out.find(words), std::string::npos) << words << "\n" << apart.out << apart.err;
  EXPECT_EQ(apart.out.find('+' + std::string("ln_2")), std::string::npos) << apart.out;
  const Result ranks = run("bench layers --model vit_micro --np 2");
  EXPECT_EQ(ranks.code, 2) << ranks.err;
}

// The rates of a run are those of the batch, also after it was stopped and went on.
TEST(LearningRate, FollowsTheBatch) {
  const std::string common =
      "train" + tiny +
      "--set data.train_size=640 --set lr.schedule=constant --set lr.warmup=0 --lr 0.002 --quiet ";
  struct Row {
    std::string scale;
    double rate;
  };
  for (const Row& row : {Row{"none", 0.002}, Row{"linear", 0.002 * 32 / 256},
                         Row{"sqrt", 0.002 * std::sqrt(32.0 / 256)}}) {
    const fs::path out = scratch() / ("scaled_" + row.scale);
    const std::string command = common + "--set lr.scale=" + row.scale +
                                " --set checkpoint.every=2 --steps 4 --out " + out.string();
    ASSERT_EQ(run(command).code, 0);
    // As if it had been lost after its second step.
    fs::remove_all(out / "ckpt" / "step-4");
    fs::remove(out / "summary.json");
    const Result on = run(command);
    ASSERT_EQ(on.code, 0) << on.err;
    const std::vector<json> steps = lines_of(out, "step");
    ASSERT_EQ(steps.size(), 4u);
    for (const json& step : steps)
      EXPECT_DOUBLE_EQ(step["lr"].get<double>(), row.rate) << row.scale;
    const bool said =
        read(out / "resolved.toml").find("# the peak learning rate is") != std::string::npos;
    EXPECT_EQ(said, row.scale != "none");
  }
  const Result show = run("config show --global-batch 1024 --lr 0.001 --set lr.scale=linear");
  EXPECT_NE(show.out.find("# the peak learning rate is 0.004: optim.lr 0.001 x 1024 / 256"),
            std::string::npos)
      << show.out;
  EXPECT_NE(show.err.find("note: the peak learning rate is 0.004"), std::string::npos) << show.err;
}

TEST(Grid, ImagesOfEverySize) {
  const std::string train =
      "train --fresh --quiet --steps 1 --threads 1 --set data.train_size=2 --set data.test_size=1 "
      "--global-batch 2 ";
  for (const std::string model : {"vit_micro", "swin_micro", "resnet_micro_cifar"})
    for (const int side : {32, 40, 64, 128}) {
      const std::string out = (scratch() / "sizes").string();
      const Result r = run(train + "--out " + out + " --model " + model +
                           " --set model.image=" + std::to_string(side));
      ASSERT_EQ(r.code, 0) << model << " " << side << "\n" << r.err;
    }
  // A large image of few, large patches.
  const Result r =
      run("bench infer --json --repeats 1 --batch 1 --model vit_micro --set model.image=896 --set "
          "model.patch=64 --threads 1");
  EXPECT_EQ(r.code, 0) << r.err;
  const Result odd = run("config check --epochs 1 --model vit_micro --set model.image=50");
  EXPECT_EQ(odd.code, 2);
  EXPECT_NE(odd.err.find("does not divide"), std::string::npos) << odd.err;
}

TEST(Grid, OptimizersWorkersAndThreads) {
  const fs::path out = scratch() / "grid";
  for (const std::string optimizer : {"adamw", "sgd", "lamb"})
    for (const int workers : {0, 2}) {
      const Result r =
          run("train --model vit_micro --set data.train_size=64 --set data.test_size=16 "
              "--global-batch 32 --fresh --quiet --steps 2 --out " +
              out.string() + " --set optim.name=" + optimizer +
              " --set run.threads=1 --set run.fuse=false --set data.workers=" +
              std::to_string(workers));
      ASSERT_EQ(r.code, 0) << optimizer << " " << workers << "\n" << r.err;
      const std::string resolved = read(out / "resolved.toml");
      for (const std::string& value :
           {"\"" + optimizer + "\"", "= " + std::to_string(workers) + "\n",
            std::string("= false\n")})
        EXPECT_NE(resolved.find(value), std::string::npos) << value << "\n" << resolved;
    }
}

}  // namespace
}  // namespace tessera::test::layers_test
