// Real data through the binary: fetched, checked, described, trained on, evaluated, predicted, measured.
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

const std::string small = " --model vit_micro --set model.depth=1 --threads 2 --global-batch 16 --quiet --fresh ";

TEST(DataVerbs, GetFetchesChecksUnpacksAndIsContentWithWhatIsThere) {
  const Scratch scratch;
  const data::CifarForm& form = data::cifar10_form();
  const std::string archive = test::cifar_archive(form, 4), dir = (scratch / "d").string();
  test::write_bytes(scratch / "reference", archive);
  const std::string md5 = data::md5_of(scratch / "reference");
  test::Server server(archive, {.cut_after = archive.size() / 2, .cut_times = 1});
  const std::string get = "data get cifar10 --json --out " + dir + " --url " + server.url() + " --md5 ";
  Result r = run(get + std::string(32, '1'));
  EXPECT_EQ(r.code, 3);
  EXPECT_NE(r.err.find("wrong checksum"), std::string::npos) << r.err;
  r = run(get + md5);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(json::parse(r.out)["train"], 20);
  EXPECT_EQ(json::parse(r.out)["bytes"], archive.size());
  EXPECT_FALSE(json::parse(r.out)["already"].get<bool>());
  EXPECT_FALSE(fs::exists(scratch / "d/cifar-10-binary.tar.gz"));
  r = run(get + md5);
  EXPECT_TRUE(json::parse(r.out)["already"].get<bool>());
  fs::remove(scratch / "d/cifar-10-batches-bin/data_batch_4.bin");  // a gap is filled
  ASSERT_EQ(run(get + md5).code, 0);
  EXPECT_EQ(json::parse(run("data verify --json cifar10:" + dir).out)["train"]["images"], 20);
  EXPECT_EQ(run("data get imagenet").code, 2);
}

TEST(DataVerbs, CifarIsTrainedOnEvaluatedAndMeasured) {
  const Scratch scratch;
  test::write_cifar(data::cifar100_form(), scratch / "c", 120);
  const std::string source = "cifar100:" + (scratch / "c").string(), out = (scratch / "run").string();
  ASSERT_EQ(run("train" + small + "--epochs 1 --data " + source + " --out " + out).code, 0);
  const json e = json::parse(run("eval --json --weights " + out + " --data " + source).out);
  EXPECT_EQ(e["images"], 120);
  EXPECT_EQ(e["classes"].size(), 100u);
  const json s = json::parse(run("data stats --json " + source).out);
  EXPECT_EQ(s["train"]["classes"][3]["images"], 2);
  EXPECT_EQ(s["train"]["height"]["max"], 32);
  EXPECT_NEAR(s["train"]["mean"][0].get<double>(), 0.5, 0.05);
  EXPECT_GT(json::parse(run("bench data --json --repeats 1 --workers 1 --data " + source).out)["images_per_s"]["median"], 0.0);
  const Result r = run("train" + small + "--epochs 1 --set model.classes=9 --data " + source + " --out " + out);
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find("model.classes = 9"), std::string::npos) << r.err;
}

// Evaluation of a run sees what its training saw: the normalisation is the run's; the mirrored score stands beside the plain one.
TEST(DataVerbs, EvaluationFollowsTheRun) {
  const Scratch scratch;
  test::write_cifar(data::cifar10_form(), scratch / "c", 60);
  const std::string source = "cifar10:" + (scratch / "c").string(), out = (scratch / "run").string();
  ASSERT_EQ(run("train" + small +
                "--epochs 2 --set data.normalize=cifar10 --set data.tta=flip --set data.class_weights=balanced --set "
                "data.mixup=0.2 --set data.crop=4 --set data.flip=random --data " +
                source + " --out " + out)
                .code,
            0);
  const json last = json::parse(test::read_bytes(scratch / "run/summary.json"));
  const json e = json::parse(run("eval --json --tta flip --weights " + out + " --data " + source).out);
  EXPECT_NEAR(e["loss"].get<double>(), last["final"]["test_loss"].get<double>(), 1e-5);
  EXPECT_EQ(e["top1"], last["final"]["test_top1"]);
  EXPECT_EQ(e["top1_tta"], last["final"]["test_top1_tta"]);
  EXPECT_EQ(last["epochs"][1]["test_top1_tta"], last["final"]["test_top1_tta"]);
  EXPECT_NE(test::read_bytes(scratch / "run/metrics.jsonl").find("\"test_top1_tta\""), std::string::npos);
  EXPECT_FALSE(json::parse(run("eval --json --weights " + out + " --data " + source).out).contains("top1_tta"));
  EXPECT_EQ(run("eval --tta five --weights " + out + " --data " + source).code, 2);
}

TEST(DataVerbs, FoldersAreTrainedOnAndBadFilesAreFound) {
  const Scratch scratch;
  for (const char* name : {"red", "green", "blue"}) test::write_class(scratch / "f" / name, 20, 40, 50);
  const std::string source = "folder:" + (scratch / "f").string(), out = (scratch / "run").string();
  Result r = run("train" + small + "--epochs 2 --set data.balanced=true --set data.drop_last=true --data " + source + " --out " + out);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(json::parse(run("eval --json --weights " + out + " --data " + source).out)["images"], 6);
  EXPECT_EQ(json::parse(run("eval --json --val-fraction 0.5 --weights " + out + " --data " + source).out)["images"], 30);
  const json p = json::parse(run("predict --weights " + out + " " + (scratch / "f/red/3.png").string()).out);
  EXPECT_EQ(p["top"].size(), 3u);
  const json b = json::parse(run("bench data --json --repeats 1 --workers 2 --model vit_micro --data " + source).out);
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
  EXPECT_EQ(run("train --model vit_micro --epochs 1 --set data.balanced=true --set data.shuffle=false").code, 2);
}

}  // namespace
}  // namespace tessera::data_test
