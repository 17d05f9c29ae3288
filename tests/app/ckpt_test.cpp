// tessera ckpt from outside, weights from wherever they lie, time to a target, and steps that are
// skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "app/binary.h"

namespace tessera::test::ckpt_test {
namespace {

std::string quoted(const fs::path& path) { return "'" + path.string() + "'"; }

TEST(Ckpt, ListVerifyDiffAndExport) {
  const fs::path a = scratch() / "ckpt_a", b = scratch() / "ckpt_b",
                 exported = scratch() / "exported";
  const std::string arguments =
      "train" + tiny + "--epochs 4 --set checkpoint.keep=9 --quiet --fresh --out ";
  ASSERT_EQ(run(arguments + a.string()).code, 0);
  ASSERT_EQ(run(arguments + b.string() + " --seed 1").code, 0);

  const json listed = json::parse(run("ckpt ls --json " + a.string()).out);
  ASSERT_EQ(listed.size(), 4u);
  int best = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(listed[i]["step"], 12 - 3 * i);
    EXPECT_EQ(listed[i]["epoch"], 4 - i);
    EXPECT_TRUE(listed[i]["valid"].get<bool>());
    EXPECT_GT(listed[i]["bytes"].get<std::int64_t>(), 500'000);
    EXPECT_GT(listed[i]["time"].get<std::int64_t>(), 1'600'000'000);
    best += listed[i]["best"].get<bool>();
  }
  EXPECT_EQ(best, 1);
  EXPECT_NE(run("ckpt ls " + a.string()).out.find("best: top1"), std::string::npos);

  EXPECT_EQ(run("ckpt diff " + a.string() + " " + (a / "ckpt/step-12").string()).code, 0);
  const Result differ = run("ckpt diff --json " + a.string() + " " + b.string());
  EXPECT_EQ(differ.code, 1);
  EXPECT_FALSE(json::parse(differ.out)["equal"].get<bool>());
  EXPECT_GT(json::parse(differ.out)["tensors"][0]["max_abs"].get<double>(), 0);

  // A class token that there is not: only timm has words for mean pooling.
  for (const char* how : {"--naming torchvision", "--naming hf"}) {
    const Result refused =
        run("ckpt export " + a.string() + " --out " + exported.string() + " " + how);
    EXPECT_EQ(refused.code, 2) << how;
    EXPECT_NE(refused.err.find("class token"), std::string::npos) << refused.err;
    EXPECT_FALSE(fs::exists(exported));
  }
  for (const char* how : {"--naming timm", "--naming timm --dtype f64", "--naming tessera"}) {
    ASSERT_EQ(run("ckpt export " + a.string() + " --out " + exported.string() + " " + how).code, 0);
    const Result same = run("ckpt diff " + a.string() + " " + exported.string());
    EXPECT_EQ(same.code, 0) << how << same.out << same.err;
  }
  EXPECT_EQ(run("ckpt diff " + (a / "weights.safetensors").string() + " " + exported.string()).code,
            0);
  const json config = json::parse(read(exported / "config.json")),
             pre = json::parse(read(exported / "preprocessor_config.json"));
  EXPECT_EQ(config["model_type"], "vit");
  EXPECT_EQ(config["id2label"]["0"], "disc");
  EXPECT_EQ(pre["crop_size"]["height"], 32);
  EXPECT_EQ(pre["image_mean"].size(), 3u);

  // The same answer from a run, a checkpoint, an exported folder and a file; a run killed before
  // its end has no weight file.
  std::vector<double> tops;
  fs::remove(b / "weights.safetensors");
  for (const fs::path& w : {a, a / "ckpt/step-12", exported, a / "weights.safetensors"})
    tops.push_back(
        json::parse(run("eval --json --weights " + w.string() + " --data synthetic --test-size 32")
                        .out)["loss"]
            .get<double>());
  EXPECT_EQ(tops, std::vector<double>(4, tops[0]));
  const Result predicted =
      run("predict --weights " + b.string() + " " TESSERA_SOURCE_DIR "/tests/golden/disc.png");
  EXPECT_EQ(predicted.code, 0) << predicted.err;

  // Damage: named, passed over, exit 4 where that was the question.
  fs::resize_file(a / "ckpt/step-12/rank-0.safetensors", 5000);
  const Result verified = run("ckpt verify " + a.string());
  EXPECT_EQ(verified.code, 4);
  EXPECT_NE(verified.out.find("step-12: BAD"), std::string::npos) << verified.out;
  EXPECT_EQ(run("ckpt verify " + (a / "ckpt/step-9").string()).code, 0);
  const Result older = run("ckpt export " + a.string() + " --out " + exported.string());
  EXPECT_EQ(older.code, 0);
  EXPECT_NE(older.err.find("passed over"), std::string::npos) << older.err;
  EXPECT_NE(older.out.find("step-9"), std::string::npos) << older.out;
  EXPECT_EQ(run("eval --weights " + (a / "ckpt/step-12").string() + " --data synthetic").code, 4);
  EXPECT_EQ(run("ckpt ls " + scratch().string()).code, 4);
  EXPECT_EQ(run("ckpt export " + a.string()).code, 2);
}

TEST(Ckpt, TimeToATargetIsInTheSummary) {
  const fs::path folder = scratch() / "target";
  ASSERT_EQ(
      run("train" + tiny + "--epochs 5 --until loss=100 --quiet --fresh --out " + folder.string())
          .code,
      0);
  const json summary = json::parse(read(folder / "summary.json"));
  EXPECT_TRUE(summary["reached"].get<bool>());
  EXPECT_EQ(summary["epochs_to_target"], 1);
  EXPECT_GT(summary["time_to_target_s"].get<double>(), 0);
  EXPECT_EQ(summary["epochs"].size(), 1u);
  EXPECT_EQ(summary["skipped"], 0);
  // Killed between reaching the target and the summary: the next process knows that it was reached.
  fs::remove(folder / "summary.json");
  ASSERT_EQ(
      run("train" + tiny + "--epochs 5 --until loss=100 --quiet --out " + folder.string()).code, 0);
  EXPECT_EQ(json::parse(read(folder / "summary.json"))["epochs"].size(), 1u);
}

// Batch norm, a moving average with statistics of its own, and epochs that drop their last batch:
// killed after the last checkpoint, the next process ends with the same weights; stopped inside an
// epoch likewise.
TEST(Ckpt, StatisticsAndAveragesResumeExactly) {
  const fs::path whole = scratch() / "bn_whole", parts = scratch() / "bn_parts";
  const std::string arguments =
      "train --model resnet_micro_cifar --set data.train_size=70 --set data.test_size=16 "
      "--global-batch 16 --threads 2 --set ema.decay=0.9 "
      "--set data.drop_last=true --epochs 6 --set checkpoint.every=3 --quiet --out ";
  const Result alone = run(arguments + whole.string() + " --fresh");
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(lines_of(whole, "step").size(), 24u);
  EXPECT_EQ(lines_of(whole, "epoch").size(), 6u);
  fs::copy(whole, parts, fs::copy_options::recursive);
  for (const char* name : {"summary.json", "weights.safetensors"}) fs::remove(parts / name);
  ASSERT_EQ(run(arguments + parts.string()).code, 0);
  EXPECT_TRUE(read(parts / "weights.safetensors") == read(whole / "weights.safetensors"));
  EXPECT_EQ(
      run("ckpt diff " + parts.string() + " " + (whole / "weights.safetensors").string()).code, 0);

  for (const char* name : {"summary.json", "weights.safetensors", "ckpt/step-24"})
    fs::remove_all(parts / name);  // back to step 21
  ASSERT_EQ(run(arguments + parts.string()).code, 0);
  EXPECT_TRUE(read(parts / "weights.safetensors") == read(whole / "weights.safetensors"));
  EXPECT_EQ(losses(parts), losses(whole));
}

// A copy of a weight file with every element of the head multiplied.
void scale_head(const fs::path& from, const fs::path& to, double factor) {
  std::string bytes = without_hash(read(from));
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const json header = json::parse(bytes.substr(8, length));
  const auto span = header["heads.head.weight"]["data_offsets"];
  for (std::size_t at = 8 + length + span[0].get<std::size_t>();
       at < 8 + length + span[1].get<std::size_t>(); at += 4) {
    float value;
    std::memcpy(&value, bytes.data() + at, 4);
    value = static_cast<float>(value * factor);
    std::memcpy(bytes.data() + at, &value, 4);
  }
  write(to, bytes);
}

// A head so large that the gradient norm of some batches overflows and of others does not: those
// are skipped, and stopping in between changes nothing.
TEST(Ckpt, SkippedStepsAreCountedAndResumeIsExact) {
  const fs::path base = scratch() / "skip_base", probe = scratch() / "skip_probe",
                 whole = scratch() / "skip_whole", parts = scratch() / "skip_parts",
                 init = scratch() / "skip.safetensors";
  const std::string arguments =
      "train --model vit_micro --set model.depth=1 --set data.train_size=96 --set data.test_size=8 "
      "--global-batch 8 "
      "--threads 1 --set optim.name=sgd --set optim.weight_decay=0 --lr 1e-25 --set "
      "lr.schedule=constant --quiet "
      "--set run.eval_every=0 --set checkpoint.every=1 --epochs 5 ";
  ASSERT_EQ(
      run(arguments + "--set model.head_init=normal --steps 1 --fresh --out " + base.string()).code,
      0);
  scale_head(base / "weights.safetensors", init, 1e15);
  const std::string from = "--set model.head_init=normal --init " + quoted(init) + " --out ";
  ASSERT_EQ(run(arguments + from + probe.string() + " --fresh").code, 0);
  std::vector<double> norms;
  for (const json& m : lines_of(probe, "step")) norms.push_back(m["grad_norm"]);
  std::sort(norms.begin(), norms.end());
  scale_head(base / "weights.safetensors", init, 1e15 * 1.8446e19 / norms[norms.size() * 3 / 4]);

  const Result alone = run(arguments + from + whole.string() + " --fresh");
  ASSERT_EQ(alone.code, 0) << alone.err;
  std::int64_t skipped = 0;
  for (const json& m : lines_of(whole, "step")) skipped += m.contains("skipped");
  const json summary = json::parse(read(whole / "summary.json"));
  EXPECT_GT(skipped, 0);
  EXPECT_EQ(summary["skipped"], skipped);
  EXPECT_EQ(summary["steps"], 60 - skipped);  // a skipped step uses its batch up and is no update
  EXPECT_EQ(lines_of(whole, "step").size(), 60u);

  int code = 75;
  for (int stops = 0; code != 0; ++stops) {
    Process process(arguments + from + parts.string());
    if (stops < 4) {
      std::this_thread::sleep_for(std::chrono::milliseconds(150 + 60 * stops));
      process.signal(stops % 2 ? SIGKILL : SIGTERM);
    }
    code = process.wait();
    ASSERT_TRUE(code == 0 || code == 75 || code == 128 + SIGKILL || code == 128 + SIGTERM) << code;
  }
  EXPECT_EQ(losses(parts), losses(whole));
  EXPECT_TRUE(read(parts / "weights.safetensors") == read(whole / "weights.safetensors"));
}

TEST(Ckpt, TenSkippedStepsInARowAreNamedAndEndTheRun) {
  const fs::path base = scratch() / "nan_base", folder = scratch() / "nan_run",
                 init = scratch() / "nan.safetensors";
  ASSERT_EQ(run("train" + tiny + "--steps 1 --quiet --fresh --out " + base.string()).code, 0);
  scale_head(base / "weights.safetensors", init, std::nan(""));
  const Result r = run("train" + tiny + "--epochs 9 --quiet --fresh --init " + init.string() +
                       " --out " + folder.string());
  EXPECT_EQ(r.code, 5) << r.err;
  for (const char* words :
       {"10 steps in a row",
        "param.heads.head.weight f32[10,64] already has 640 NaN of 640 elements",
        "first bad tensor: ", "scope 'head'", "forward pass"})
    EXPECT_NE(r.err.find(words), std::string::npos) << words << "\n" << r.err;
  EXPECT_EQ(lines_of(folder, "step").size(), 10u);
  for (const json& m : lines_of(folder, "step")) EXPECT_TRUE(m["skipped"].get<bool>());
  EXPECT_EQ(run("ckpt verify " + folder.string()).code, 0);
}

}  // namespace
}  // namespace tessera::test::ckpt_test
