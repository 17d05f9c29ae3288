// Real data through the binary: fetched, checked, described, trained on, evaluated, predicted,
// measured.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/binary.h"
#include "data/fetch.h"
#include "data/fixtures.h"
#include "data/server.h"
#include "files/scratch.h"

namespace tessera::data_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Result;
using test::run;
using test::Scratch;

const std::string small =
    " --model vit_micro --set model.depth=1 --threads 2 --global-batch 16 --quiet --fresh ";

TEST(DataVerbs, GetFetchesChecksUnpacksAndIsContentWithWhatIsThere) {
  const Scratch scratch;
  const data::CifarForm& form = data::cifar10_form();
  const std::string archive = test::cifar_archive(form, 4), dir = (scratch / "d").string();
  test::write_bytes(scratch / "reference", archive);
  const std::string sha256 = data::digest_of(scratch / "reference", data::Digest::sha256);
  test::Server server(archive, {.cut_after = archive.size() / 2, .cut_times = 1});
  const std::string get =
      "data get cifar10 --json --out " + dir + " --url " + server.url() + " --sha256 ";
  Result r = run(get + std::string(64, '1'));
  EXPECT_EQ(r.code, 3);
  EXPECT_NE(r.err.find("wrong checksum"), std::string::npos) << r.err;
  r = run(get + sha256);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(json::parse(r.out)["train"], 20);
  EXPECT_EQ(json::parse(r.out)["bytes"], archive.size());
  EXPECT_FALSE(json::parse(r.out)["already"].get<bool>());
  EXPECT_FALSE(fs::exists(scratch / "d/cifar-10-binary.tar.gz"));
  r = run(get + sha256);
  EXPECT_TRUE(json::parse(r.out)["already"].get<bool>());
  fs::remove(scratch / "d/cifar-10-batches-bin/data_batch_4.bin");  // a gap is filled
  ASSERT_EQ(run(get + sha256).code, 0);
  EXPECT_EQ(json::parse(run("data verify --json cifar10:" + dir).out)["train"]["images"], 20);
  EXPECT_EQ(run("data get imagenet").code, 2);
}

TEST(DataVerbs, CifarIsTrainedOnEvaluatedAndMeasured) {
  const Scratch scratch;
  test::write_cifar(data::cifar100_form(), scratch / "c", 120);
  const std::string source = "cifar100:" + (scratch / "c").string(),
                    out = (scratch / "run").string();
  ASSERT_EQ(run("train" + small + "--epochs 1 --data " + source + " --out " + out).code, 0);
  const json e = json::parse(run("eval --json --weights " + out + " --data " + source).out);
  EXPECT_EQ(e["images"], 120);
  EXPECT_EQ(e["classes"].size(), 100u);
  const json s = json::parse(run("data stats --json " + source).out);
  EXPECT_EQ(s["train"]["classes"][3]["images"], 2);
  EXPECT_EQ(s["train"]["height"]["max"], 32);
  EXPECT_NEAR(s["train"]["mean"][0].get<double>(), 0.5, 0.05);
  EXPECT_GT(json::parse(run("bench data --json --repeats 1 --workers 1 --data " + source)
                            .out)["images_per_s"]["median"],
            0.0);
  const Result r =
      run("train" + small + "--epochs 1 --set model.classes=9 --data " + source + " --out " + out);
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find("model.classes = 9"), std::string::npos) << r.err;
}

// Evaluation of a run sees what its training saw: the normalisation is the run's; the mirrored
// score stands beside the plain one.
TEST(DataVerbs, EvaluationFollowsTheRun) {
  const Scratch scratch;
  test::write_cifar(data::cifar10_form(), scratch / "c", 60);
  const std::string source = "cifar10:" + (scratch / "c").string(),
                    out = (scratch / "run").string();
  ASSERT_EQ(run("train" + small +
                "--epochs 2 --set data.normalize=cifar10 --set data.tta=flip --set "
                "data.class_weights=balanced --set "
                "data.mixup=0.2 --set data.crop=4 --set data.flip=random --data " +
                source + " --out " + out)
                .code,
            0);
  const json last = json::parse(test::read_bytes(scratch / "run/summary.json"));
  const json e =
      json::parse(run("eval --json --tta flip --weights " + out + " --data " + source).out);
  EXPECT_NEAR(e["loss"].get<double>(), last["final"]["test_loss"].get<double>(), 1e-5);
  EXPECT_EQ(e["top1"], last["final"]["test_top1"]);
  EXPECT_EQ(e["top1_tta"], last["final"]["test_top1_tta"]);
  EXPECT_EQ(last["epochs"][1]["test_top1_tta"], last["final"]["test_top1_tta"]);
  EXPECT_NE(test::read_bytes(scratch / "run/metrics.jsonl").find("\"test_top1_tta\""),
            std::string::npos);
  EXPECT_FALSE(json::parse(run("eval --json --weights " + out + " --data " + source).out)
                   .contains("top1_tta"));
  EXPECT_EQ(run("eval --tta five --weights " + out + " --data " + source).code, 2);
}

TEST(DataVerbs, FoldersAreTrainedOnAndBadFilesAreFound) {
  const Scratch scratch;
  for (const char* name : {"red", "green", "blue"})
    test::write_class(scratch / "f" / name, 20, 40, 50);
  const std::string source = "folder:" + (scratch / "f").string(), out = (scratch / "run").string();
  Result r = run("train" + small +
                 "--epochs 2 --set data.balanced=true --set data.drop_last=true --data " + source +
                 " --out " + out);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(json::parse(run("eval --json --weights " + out + " --data " + source).out)["images"],
            6);
  EXPECT_EQ(json::parse(run("eval --json --val-fraction 0.5 --weights " + out + " --data " + source)
                            .out)["images"],
            30);
  const json p =
      json::parse(run("predict --weights " + out + " " + (scratch / "f/red/3.png").string()).out);
  EXPECT_EQ(p["top"].size(), 3u);
  const json b = json::parse(
      run("bench data --json --repeats 1 --workers 2 --model vit_micro --data " + source).out);
  EXPECT_GT(b["of_decoder"], 0.0);

  test::write_bytes(scratch / "f/red/notes.txt", "x");
  EXPECT_EQ(run("data verify " + source).code, 0);
  test::write_bytes(scratch / "f/red/3.png", "not a picture");
  r = run("data verify --json " + source);
  EXPECT_EQ(r.code, 3);
  EXPECT_NE(json::parse(r.out)["bad"][0].get<std::string>().find("red/3.png"), std::string::npos);
  EXPECT_EQ(json::parse(r.out)["train"]["ignored"], 1);
  r = run("train" + small + "--epochs 1 --data " + source + " --out " + out);
  EXPECT_EQ(r.code, 3);
  EXPECT_NE(r.err.find("red/3.png"), std::string::npos) << r.err;
  fs::remove_all(scratch / "f/blue");
  fs::create_directories(scratch / "f/blue");
  r = run("data stats " + source);
  EXPECT_EQ(r.code, 3);
  EXPECT_NE(r.err.find("class blue"), std::string::npos) << r.err;
  EXPECT_EQ(
      run("train --model vit_micro --epochs 1 --set data.balanced=true --set data.shuffle=false")
          .code,
      2);
}

// A part of a folder is kept for testing by the run's seed and fraction: evaluation scores that
// part and no other, unless a flag says so.
TEST(DataVerbs, EvaluationScoresWhatTheRunKept) {
  const Scratch scratch;
  for (const char* name : {"red", "green"}) test::write_class(scratch / "f" / name, 20, 40, 50);
  const std::string source = "folder:" + (scratch / "f").string(), out = (scratch / "run").string();
  const Result t = run(
      "train" + small +
      "--json --steps 3 --seed 7 --set data.val_fraction=0.3 --set model.head_init=normal --data " +
      source + " --out " + out);
  ASSERT_EQ(t.code, 0) << t.err;
  const json trained = json::parse(t.out)["final"];
  for (const std::string& weights : {out, out + "/weights.safetensors", out + "/ckpt/step-3"}) {
    const Result r =
        run("eval --json --weights " + weights + " --data folder:" + (scratch / "f/../f").string());
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(json::parse(r.out)["images"], 12) << weights;
    EXPECT_NEAR(json::parse(r.out)["loss"].get<double>(), trained["test_loss"].get<double>(), 1e-5)
        << weights;
    EXPECT_EQ(r.err.find("trained on"), std::string::npos) << r.err;
  }
  const Result other = run("eval --json --seed 3 --weights " + out + " --data " + source);
  EXPECT_EQ(json::parse(other.out)["images"], 12);
  EXPECT_NE(other.err.find("run.seed is 3, the run had 7"), std::string::npos) << other.err;
  fs::copy_file(scratch / "run/weights.safetensors", scratch / "w.safetensors");
  const Result alone =
      run("eval --json --weights " + (scratch / "w.safetensors").string() + " --data " + source);
  EXPECT_EQ(json::parse(alone.out)["images"], 4);
  EXPECT_NE(alone.err.find("is not known"), std::string::npos) << alone.err;
}

// Labels are what the weights call them: the same names in another order are matched, other names
// are refused.
TEST(DataVerbs, ClassesAreMatchedByName) {
  const Scratch scratch;
  const fs::path f = scratch / "f";
  int count = 4;  // another number of images in each, so that a wrong label shows
  for (const char* name : {"a", "b", "c"})
    for (const char* split : {"train", "val"})
      test::write_class(f / split / name, count += 3, 32, 32);
  const std::string source = "folder:" + f.string(), out = (scratch / "run").string();
  ASSERT_EQ(run("train" + small + "--steps 3 --set model.head_init=normal --data " + source +
                " --out " + out)
                .code,
            0);
  const std::string weights = out + "/weights.safetensors",
                    eval = "eval --json --weights " + weights + " --data " + source;
  const json before = json::parse(run(eval).out);
  // Everything is renamed: the classes by turns, in the weights and on the disk.
  std::string bytes = test::without_hash(test::read_bytes(weights));
  const std::string names = R"([\"a\",\"b\",\"c\"])";
  ASSERT_NE(bytes.find(names), std::string::npos);
  test::write_bytes(weights,
                    bytes.replace(bytes.find(names), names.size(), R"([\"b\",\"c\",\"a\"])"));
  for (const char* split : {"train", "val"})
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
             {"a", "x"}, {"c", "a"}, {"b", "c"}, {"x", "b"}})
      fs::rename(f / split / from, f / split / to);
  const json after = json::parse(run(eval).out);
  EXPECT_NEAR(after["loss"].get<double>(), before["loss"].get<double>(), 1e-5);
  EXPECT_EQ(after["top1"], before["top1"]);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(after["classes"][i]["class"], (std::vector<std::string>{"b", "c", "a"})[i]);
    for (const char* key : {"images", "correct"})
      EXPECT_EQ(after["classes"][i][key], before["classes"][i][key]) << i << key;
  }
  for (const char* split : {"train", "val"}) fs::rename(f / split / "b", f / split / "zebra");
  const Result r = run(eval);
  EXPECT_EQ(r.code, 3);
  EXPECT_NE(r.err.find("only the data has zebra; only the weights have b"), std::string::npos)
      << r.err;
}

// Arrays of five channels in 16 bits, whose classes differ by less than an 8-bit picture can show.
TEST(DataVerbs, ArraysAreTrainedOnAndEvaluated) {
  const Scratch scratch;
  for (const char* name : {"dark", "light"})
    for (int i = 0; i < 12; ++i) {
      std::string header = "{'descr': '<u2', 'fortran_order': False, 'shape': (8, 8, 5), }";
      header.resize(117, ' ');
      std::string file =
          "\x93NUMPY\x01" + std::string(1, '\0') + "v" + std::string(1, '\0') + header + "\n";
      for (int k = 0; k < 8 * 8 * 5; ++k) {
        const int value = 30000 + (k * 7 + i * 13) % 40 + (name[0] == 'l' ? 100 : 0);
        file += static_cast<char>(value & 255);
        file += static_cast<char>(value >> 8);
      }
      fs::create_directories(scratch / "d" / name);
      test::write_bytes(scratch / "d" / name / (std::to_string(i) + ".npy"), file);
    }
  const std::string source = "npy:" + (scratch / "d").string(), out = (scratch / "run").string();
  const json stats =
      json::parse(run("data stats --json " + source + " --set model.channels=5").out);
  ASSERT_EQ(stats["train"]["mean"].size(), 5u);
  const double mean = stats["train"]["mean"][0], deviation = stats["train"]["deviation"][0];
  EXPECT_NEAR(mean, 30070.0 / 65535, 1e-4);
  EXPECT_LT(deviation, 1.0 / 255);
  const std::string keys = fmt::format(
      " --set model.channels=5 --set model.image=8 --set data.mean=[{}] --set "
      "data.deviation=[{}] --set data.val_fraction=0.25 ",
      mean, deviation);
  const Result trained = run("train" + small + keys +
                             "--set data.flip=random --set data.crop=1 --set data.mixup=0.1 "
                             "--epochs 20 --lr 3e-3 --data " +
                             source + " --out " + out);
  ASSERT_EQ(trained.code, 0) << trained.err;
  const json e = json::parse(run("eval --json --weights " + out + " --data " + source).out);
  EXPECT_EQ(e["images"], 6);
  EXPECT_EQ(e["top1"], 1.0);
  const Result one = run("predict --weights " + out + " " + (scratch / "d/light/3.npy").string());
  EXPECT_EQ(json::parse(one.out)["top"][0]["label"], "light") << one.err;
  const Result refused =
      run("train" + small + keys + "--set data.autoaugment=true --data " + source);
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("8-bit colours"), std::string::npos) << refused.err;
  test::write_bytes(scratch / "d/dark/0.npy", "\x93NUMPY");
  EXPECT_EQ(run("data verify " + source + " --set model.channels=5").code, 3);
  // A list of arrays names those that cannot be read, and no other.
  test::write_bytes(scratch / "d/light/1.npy", "no array");
  std::string several;
  for (const char* name : {"d/dark/0.npy", "d/light/0.npy", "d/light/1.npy"})
    several += " " + (scratch / name).string();
  const Result bad = run("predict --weights " + out + several);
  EXPECT_EQ(bad.code, 3);
  EXPECT_NE(bad.err.find("also: " + (scratch / "d/light/1.npy").string()), std::string::npos)
      << bad.err;
  EXPECT_EQ(bad.err.find("light/0.npy"), std::string::npos) << bad.err;
  EXPECT_EQ(bad.err.find("PNG"), std::string::npos) << bad.err;
}

}  // namespace
}  // namespace tessera::data_test
