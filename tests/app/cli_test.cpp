// The binary as a person or a script meets it: exit codes, words of errors, JSON on stdout, runs
// that stop and go on.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "app/binary.h"
#include "wait_until.h"

namespace tessera::test::cli_test {
namespace {

TEST(Cli, BadInputIsRefusedWithItsExitCode) {
  write(scratch() / "bad.toml", "[model]\nname = \"vit_micro\"\nheads = 3\n[optim]\nlr = -1\n");
  write(scratch() / "broken.safetensors", std::string(100, 'x'));
  write(scratch() / "broken.png", "\x89PNG\r\n\x1a\n truncated");
  write(scratch() / "note.txt", "not an image");
  ASSERT_EQ(run("train" + tiny + "--steps 1 --out " + (scratch() / "w").string() + " --quiet").code,
            0);
  const std::string s = scratch().string(), w = s + "/w/weights.safetensors",
                    golden = TESSERA_SOURCE_DIR "/tests/golden/";
  const std::vector<std::tuple<std::string, int, std::string>> rows = {
      {"", 2, "verb"},
      {"trian", 2, "trian"},
      {"train --model vit_b_17 --steps 1", 2, "vit_b_16"},
      {"train --model vit_micro", 2, "epochs"},
      {"train --nonsense 3", 2, "nonsense"},
      {"train --modle vit_micro --steps 1", 2, "did you mean --model?"},
      {"predict --topk=3 --weights w x.png", 2, "did you mean --top?"},
      {"ckpt lsit x", 2, "did you mean ls?"},
      {"ckpt", 2, "ls, verify, diff, export"},
      {"train" + tiny + "--steps 1 --data cifar10", 2, "data get cifar10"},
      {"train " + s + "/missing.toml", 2, "missing.toml"},
      {"train " + s + "/bad.toml --steps 1", 2, "does not divide"},
      {"config check " + s + "/bad.toml", 2, "optim.lr"},
      {"train" + tiny + "--steps 1 --tp 3", 2, "tp"},
      {"train" + tiny + "--steps 1 --dtype fp7", 2, "fp7"},
      {"train" + tiny + "--steps 1 --data cifar10:" + s, 3, "data_batch_1.bin"},
      {"train" + tiny + "--steps 1 --init " + s + "/broken.safetensors --fresh --out " + s + "/x",
       4, "broken.safetensors"},
      {"train" + tiny + "--steps 1 --out /dev/null/run", 9, "/dev/null/run"},
      {"train" + tiny + "--steps 1 --out " + s + "/note.txt", 9,
       "note.txt: expected a folder for the run, found a file"},
      {"train" + tiny +
           "--steps 50 --set optim.name=sgd --lr 1000 --set lr.schedule=constant --fresh --out " +
           s + "/nan",
       5, "not finite"},
      {"train --model vit_h_14 --steps 1 --global-batch 60000 --out " + s + "/big", 8, " MB"},
      {"eval --weights " + s + "/none.safetensors --data synthetic", 4, "none.safetensors"},
      {"eval --weights " + s + "/broken.safetensors --data synthetic", 4, "broken.safetensors"},
      {"eval --weights " + golden + "vit_square.safetensors --data synthetic", 4, "vit parameter"},
      {"eval --weights " + w + " --data synthetic:64x64x3,10", 2, "height"},
      {"eval --weights " + w + " --data nonsense", 2, "nonsense"},
      {"eval --weights " + w, 2, "--data"},
      {"predict --weights " + w + " " + s + "/broken.png", 3, "broken.png"},
      {"predict --weights " + w + " " + s + "/note.txt", 3, "note.txt"},
      {"predict --weights " + w + " " + s + "/none.png", 3, "none.png"},
      {"predict --weights " + w + " " + s, 3, "name a file in it"},
      {"predict --weights " + s + "/broken.png " + s + "/note.txt", 4, "no safetensors file"},
      {"predict --weights " + w + " " + s + "/none.png " + golden + "disc.png " + s +
           "/broken.png " + s + "/note.txt",
       3, "note.txt"},  // all that is wrong, not only the first
      {"verify " + s + "/broken.safetensors", 4, "broken.safetensors"},
      {"verify " + w, 4, "input"},
      {"verify " + golden + "vit_square.safetensors --dtype f8", 2, "f8"},
      {"bench comm", 2, "comm"},
      {"explain --model vit_micro --disable nonsense", 2, "nonsense"},
      {"explain --model vit_micro --disable autodiff", 2, "cannot be disabled"},
      {"explain --model vit_micro --tp 7", 2, "does not divide model.heads"},
      {"explain --model vit_micro --dp 2 --tp 2 --np 3", 2, "run.np = 3"},
      {"explain --model resnet18_cifar --sp 2", 2, "sequence parallelism is for vit"},
      {"explain --model vit_micro --dp 2 --zero 4", 2, "zero"},
      {"explain --model vit_micro --dp 2 --rank 2", 2, "choose 0 to 1"},
      {"explain --model vit_micro --rank 1", 2, "one rank"},
      {"train" + tiny + "--steps 1 --lr 0.25 --out " + s + "/w", 2, "another configuration"},
      {"train" + tiny + "--steps 3 --fresh --data cifar10:" + s + " --out " + s + "/w", 3,
       "data get cifar10"},
      {"train" + tiny + "--steps 1 --set data.crop=4 --set data.resized_crop=true", 2,
       "choose one of the two crops"},
      {"config show --np 3 --deepspeed eyJ0cmFpbl9iYXRjaF9zaXplIjogMzJ9", 2,
       "32 != 10 x 1 x 3 = 30"},  // a batch of 32, in base64
      {"config check --steps 1 --deepspeed " + s + "/none.json", 2,
       "none.json: there is no such file"},
      {"train" + tiny + "--steps 1 --np 2 --dp 3", 2, "dp x tp x pp"},
      {"explain --model vit_micro --set model.image=16384 --set model.patch=1 --global-batch "
       "16777216",
       2, "fit any memory"},
      {"train --model vit_micro --steps 1 --set model.dim=65536 --set model.mlp=1048576 --set "
       "model.heads=4096",
       2, "billion parameters"},
      {"config check --model vit_micro --steps 1 --set model.init=" + s + "/none.safetensors", 2,
       "model.init"},
      {"config check --model vit_micro --steps 1 --set model.heads=5 --data folder:" + s + "/none",
       2, "there is no such folder"},
      {"bench infer --model vit_micro --batch 8 --global-batch 64", 2,
       "--batch 8 and --global-batch 64 are two batches"},
      {"bench train --model vit_micro --batch 8 --micro-batch 4 --accumulate 4", 2,
       "--batch 8: batch.micro x batch.accumulate"},
      {"models > /dev/full", 9, "stdout"},
  };
  for (const auto& [arguments, code, words] : rows) {
    const Result r = run(arguments);
    EXPECT_EQ(r.code, code) << arguments << "\n" << r.err;
    EXPECT_NE(r.err.find(words), std::string::npos) << arguments << "\n" << r.err;
    EXPECT_TRUE(r.out.empty()) << arguments << "\n" << r.out;
  }
}

// A build without CUDA knows no such device; one with it names the driver or the card that it
// lacks.
TEST(Cli, ADeviceThatIsNotHereIsRefused) {
  const Result version = run("version --verbose --json");
  ASSERT_EQ(version.code, 0) << version.err;
  const json found = json::parse(version.out);
  bool card = false;
  for (const auto& [name, value] : found.items()) card |= name.starts_with("card ");
  if (card) GTEST_SKIP() << "there is a card here";
  const Result r = run("train" + tiny + "--steps 1 --device cuda");
  EXPECT_EQ(r.code, found.contains("cuda runtime") ? 10 : 2) << r.err;
  EXPECT_NE(r.err.find("cuda"), std::string::npos) << r.err;
  EXPECT_TRUE(r.out.empty()) << r.out;
}

TEST(Cli, JsonOnStdout) {
  const std::string golden = TESSERA_SOURCE_DIR "/tests/golden/vit_square.safetensors";
  const std::string folder = (scratch() / "j").string();
  const Result t = run("train" + tiny + "--epochs 2 --json --fresh --out " + folder);
  ASSERT_EQ(t.code, 0) << t.err;
  const json summary = json::parse(t.out);
  for (const char* key : {"images_per_s", "step_ms", "peak_bytes", "final", "epochs", "ranks",
                          "comm", "layout", "model", "dtype", "world", "wall_s"})
    EXPECT_TRUE(summary.contains(key)) << key;
  EXPECT_EQ(summary["peak_bytes"]["planned"], summary["peak_bytes"]["measured"]);
  EXPECT_EQ(summary["epochs"].size(), 2u);
  for (const char* file : {"resolved.toml", "env.json", "metrics.jsonl", "summary.json", "log.txt",
                           "weights.safetensors"})
    EXPECT_TRUE(fs::exists(fs::path(folder) / file)) << file;
  std::istringstream lines(read(fs::path(folder) / "metrics.jsonl"));
  int steps = 0, epochs = 0;
  for (std::string line; std::getline(lines, line);) {
    const json m = json::parse(line);
    if (m["kind"] == "epoch") {
      ++epochs;
      continue;
    }
    EXPECT_EQ(m["step"], ++steps);
    for (const char* key : {"epoch", "loss", "top1", "lr", "grad_norm", "step_ms", "images_per_s",
                            "mfu", "comm_bytes"})
      EXPECT_TRUE(m.contains(key)) << key;
  }
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(epochs, 2);

  const json e =
      json::parse(run("eval --json --weights " + folder + " --data synthetic --test-size 32").out);
  EXPECT_DOUBLE_EQ(e["top1"].get<double>(), summary["final"]["test_top1"].get<double>());
  EXPECT_EQ(e["images"], 32);
  const json p = json::parse(
      run("predict --weights " + folder + " " TESSERA_SOURCE_DIR "/tests/golden/disc.png").out);
  EXPECT_EQ(p["top"].size(), 5u);
  EXPECT_LE(p["top"][0]["probability"].dump().size(), 8u) << "six digits are enough";
  EXPECT_TRUE(json::parse(run("verify " + golden + " --json").out)["ok"].get<bool>());
  EXPECT_EQ(json::parse(run("config show --json --model vit_micro").out)["model"]["dim"], 64);
  EXPECT_NE(run("config show --model vit_micro").out.find("also needs a length"),
            std::string::npos);
  EXPECT_NE(run("config show --model vit_micro --epochs 2").out.find("repeats it"),
            std::string::npos);
  EXPECT_GT(json::parse(run("explain --model vit_micro --global-batch 4 --json").out)["peak_bytes"]
                .get<std::int64_t>(),
            0);
  const json x = json::parse(
      run("explain --model vit_micro --global-batch 5 --dp 2 --tp 2 --zero 3 --rank 3 --json").out);
  std::int64_t bytes = 0, peak = 0;
  for (const json& row : x["comm"]) bytes += row["bytes"].get<std::int64_t>();
  for (const auto& [kind, n] : x["memory"].items()) peak += n.get<std::int64_t>();
  EXPECT_EQ(x["comm_bytes"], bytes);
  EXPECT_EQ(x["peak_bytes"], peak);
  EXPECT_EQ(x["world"], 4);
  EXPECT_EQ(x["rank"], 3);
  EXPECT_EQ(x["layout"]["zero"], 3);
  EXPECT_LT(x["ranks"]["flops"]["least"].get<double>(),
            x["ranks"]["flops"]["most"].get<double>());  // 3 samples and 2
  EXPECT_NE(x["program"].get<std::string>().find("all_gather axis=\"dp\""), std::string::npos);
  EXPECT_EQ(x["program_before"].get<std::string>().find("all_gather"), std::string::npos);
  // Batch norm under micro-batches: running statistics once per micro-batch, or once per step.
  const auto updates = [](const std::string& batch_norm) {
    const json r = json::parse(run("explain --model resnet_micro_cifar --global-batch 7 "
                                   "--accumulate 3 --set model.batch_norm=" +
                                   batch_norm + " --json")
                                   .out);
    std::size_t n = 0;
    const std::string program = r["program"];
    for (std::size_t at = 0; (at = program.find("= running_stats ", at)) != program.npos; ++at) ++n;
    return n;
  };
  EXPECT_GT(updates("deferred"), 0u);
  EXPECT_EQ(updates("local"), 3 * updates("deferred"));
  EXPECT_GE(json::parse(run("models --json").out).size(), 6u);
  const json b = json::parse(
      run("bench infer --model vit_micro --batch 2 --threads 1 --repeats 2 --json").out);
  for (const char* key : {"model", "batch", "dtype", "threads", "device", "ms", "call_ms",
                          "images_per_s", "gflops", "peak_gflops", "ops"})
    EXPECT_TRUE(b.contains(key)) << key;
  EXPECT_GE(b["call_ms"]["min"].get<double>(), b["ms"]["min"].get<double>());
  for (const char* key : {"name", "group", "ms", "gflops", "share"})
    EXPECT_TRUE(b["ops"][0].contains(key)) << key;
  for (const auto& [arguments, wanted] : std::map<std::string, std::set<std::string>>{
           {"infer --model resnet_micro_cifar", {"stem", "conv1", "conv2", "downsample", "head"}},
           {"infer --model swin_micro", {"embeddings", "msa", "mlp", "merge", "head"}},
           {"train --model vit_micro",
            {"embeddings", "msa", "mlp", "head", "loss", "optimizer"}}}) {
    std::set<std::string> groups;
    const json document =
        json::parse(run("bench " + arguments + " --batch 2 --threads 1 --repeats 1 --json").out);
    for (const json& op : document["ops"]) groups.insert(op["group"]);
    EXPECT_TRUE(std::includes(groups.begin(), groups.end(), wanted.begin(), wanted.end()))
        << arguments;
    EXPECT_FALSE(groups.contains("")) << arguments;
  }
  const json ops =
      json::parse(run("bench ops --model vit_micro --batch 2 --threads 1 --repeats 2 --json").out);
  EXPECT_GT(ops["ops"].size(), 10u);
  EXPECT_EQ(ops["peaks"].size(), 1u) << ops["peaks"];
  EXPECT_EQ(ops["peaks"]["f32"], ops["peak_gflops"]);
  // Losses against the floors are listed, the most first.
  ASSERT_GT(ops["losses"].size(), 0u);
  EXPECT_LE(ops["losses"].size(), 10u);
  for (std::size_t i = 1; i < ops["losses"].size(); ++i)
    EXPECT_LE(ops["losses"][i]["ms"].get<double>(), ops["losses"][i - 1]["ms"].get<double>());
}

// A script that asked for JSON gets one document whatever happens, also about names that are no
// UTF-8.
TEST(Cli, ErrorsAreDocumentsToo) {
  const std::string s = scratch().string(),
                    golden = TESSERA_SOURCE_DIR "/tests/golden/vit_square.safetensors";
  write(scratch() / "two.toml", "[model]\nname = \"vit_micro\"\nheads = 3\n[optim]\nlr = -1\n");
  const Result r = run("config check --json " + s + "/two.toml --steps 1");
  EXPECT_EQ(r.code, 2);
  EXPECT_EQ(r.err.find("error: "), 0u) << r.err;
  const json e = json::parse(r.out);
  EXPECT_FALSE(e["ok"].get<bool>());
  EXPECT_EQ(e["exit"], 2);
  EXPECT_NE(e["error"].get<std::string>().find("does not divide"), std::string::npos) << r.out;
  EXPECT_EQ(e["where"], s + "/two.toml:3:9");
  EXPECT_NE(e["help"].get<std::string>().find("config check"), std::string::npos) << r.out;
  EXPECT_EQ(e["also"].size(), 1u);
  EXPECT_TRUE(
      json::parse(run("config check --json --model vit_micro --steps 1").out)["ok"].get<bool>());
  EXPECT_EQ(json::parse(run("trian --json").out)["exit"], 2);
  EXPECT_EQ(json::parse(run("verify --json " + s + "/none.safetensors").out)["exit"], 4);
  const std::string odd = s + "/g\xff.safetensors";
  fs::copy_file(golden, odd, fs::copy_options::overwrite_existing);
  const Result v = run("verify --json '" + odd + "'");
  EXPECT_EQ(v.code, 0) << v.err;
  EXPECT_EQ(json::parse(v.out)["golden"], s + "/g\uFFFD.safetensors");
  EXPECT_EQ(json::parse(run("verify --json '" + s + "/none\xff'").out)["exit"], 4);
}

TEST(Cli, ExplainGivesScriptsWhatWasAskedFor) {
  const std::string arguments =
      "explain --model vit_micro --set model.depth=1 --global-batch 4 --json --no-program";
  const json little = json::parse(run(arguments).out),
             all = json::parse(run(arguments + " --plan --before").out);
  for (const char* key : {"plan", "program_before"}) EXPECT_FALSE(little.contains(key)) << key;
  EXPECT_NE(all["plan"].get<std::string>().find("arena+"), std::string::npos);
  EXPECT_NE(all["program_before"].get<std::string>().find("attention"), std::string::npos);
  EXPECT_FALSE(all.contains("program"));
}

// The batch that was given is measured, by whatever key.
TEST(Cli, BenchTakesTheConfiguredBatch) {
  write(
      scratch() / "batch.toml",
      "[model]\nname = \"vit_micro\"\ndepth = 1\n[batch]\nglobal = 6\nmicro = 3\naccumulate = 2\n");
  const std::string file = (scratch() / "batch.toml").string(),
                    model = "--model vit_micro --set model.depth=1";
  for (const auto& [arguments, batch] :
       std::map<std::string, int>{{"infer " + model, 8},
                                  {"infer --global-batch 5 " + model, 5},
                                  {"layers --set batch.global=5 " + model, 5},
                                  {"train --micro-batch 4 --accumulate 3 " + model, 12},
                                  {"train --accumulate 2 " + model, 8},
                                  {"train --accumulate 2 --batch 6 " + model, 6},
                                  {"train " + file, 6},
                                  {"train --batch 4 " + file, 4}}) {
    const Result r = run("bench " + arguments + " --threads 1 --repeats 1 --json");
    ASSERT_EQ(r.code, 0) << arguments << "\n" << r.err;
    EXPECT_EQ(json::parse(r.out)["batch"], batch) << arguments;
  }
}

// A flag that was given then and is not now makes another run of it, too.
TEST(Cli, AKeyThatIsGoneIsAChange) {
  const std::string folder = (scratch() / "gone").string(),
                    before = (scratch() / "gone_before").string();
  const std::string arguments = "train" + tiny + "--epochs 2 --quiet --out ";
  ASSERT_EQ(run(arguments + before + " --fresh").code, 0);
  ASSERT_EQ(run(arguments + folder + " --fresh --until top1=0.01 --init " + before).code, 0);
  EXPECT_EQ(run(arguments + folder + " --until top1=0.01 --init " + before).code, 0);
  const Result r = run(arguments + folder);
  EXPECT_EQ(r.code, 2) << r.err;
  EXPECT_NE(r.err.find("another configuration; now asked: model.init: not set, run.until: not set"),
            std::string::npos)
      << r.err;
}

TEST(Cli, AFinishedRunIsLeftAloneAndAResolvedConfigRepeatsIt) {
  const fs::path a = scratch() / "a", b = scratch() / "b";
  ASSERT_EQ(run("train" + tiny + "--steps 4 --seed 3 --quiet --fresh --out " + a.string()).code, 0);
  const std::string weights = read(a / "weights.safetensors");
  const Result again = run("train" + tiny + "--steps 4 --seed 3 --out " + a.string());
  EXPECT_EQ(again.code, 0);
  EXPECT_NE(again.err.find("already finished"), std::string::npos);
  ASSERT_EQ(
      run("train " + (a / "resolved.toml").string() + " --quiet --fresh --out " + b.string()).code,
      0);
  EXPECT_EQ(read(b / "weights.safetensors"), weights);
  // A batch of more samples than there are is cut to them; the command and the resolved
  // configuration stay what they were.
  const fs::path all = scratch() / "all", again_all = scratch() / "again_all";
  const std::string whole =
      "train --model vit_micro --set model.depth=1 --set data.train_size=96 --set "
      "data.test_size=32 --threads 2 --steps 2 --out ";
  ASSERT_EQ(run(whole + all.string() + " --fresh").code, 0);
  EXPECT_EQ(json::parse(read(all / "summary.json"))["batch"]["global"], 96);
  const Result same = run(whole + all.string());
  EXPECT_NE(same.err.find("already finished"), std::string::npos) << same.err;
  const Result repeated = run("train " + (all / "resolved.toml").string() +
                              " --quiet --fresh --out " + again_all.string());
  ASSERT_EQ(repeated.code, 0) << repeated.err;
  EXPECT_EQ(read(again_all / "weights.safetensors"), read(all / "weights.safetensors"));
}

// Stops a run with SIGTERM, then lets the same command go on: the end must be that of a run that
// was never stopped.
TEST(Cli, AStoppedRunGoesOnWithoutLosingABit) {
  const fs::path whole = scratch() / "whole", parts = scratch() / "parts";
  const std::string arguments =
      "train" + tiny + "--set model.dropout=0.1 --epochs 40 --set run.eval_every=20 --quiet --out ";
  ASSERT_EQ(run(arguments + whole.string() + " --fresh").code, 0);
  Process child(arguments + parts.string() + " --fresh");
  wait_until([&] { return read(parts / "metrics.jsonl").size() >= 2000; });
  child.signal(SIGTERM);
  ASSERT_EQ(child.wait(), 75);
  const Result rest =
      run("train" + tiny + "--set model.dropout=0.1 --epochs 40 --set run.eval_every=20 --out " +
          parts.string());
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_NE(rest.err.find("resumed from step"), std::string::npos);
  EXPECT_EQ(read(parts / "weights.safetensors"), read(whole / "weights.safetensors"));
  EXPECT_EQ(losses(parts), losses(whole));
}

// A checkpoint of another run is an error; a damaged one is passed over for an older one; the end
// is the same.
TEST(Cli, CheckpointsAreProvedBeforeTheyAreUsed) {
  const fs::path whole = scratch() / "cw", run_folder = scratch() / "cr";
  const std::string arguments =
      "train" + tiny + "--epochs 4 --set checkpoint.keep=9 --set run.eval_every=4 --out ";
  ASSERT_EQ(run(arguments + whole.string() + " --fresh --quiet").code, 0);
  ASSERT_EQ(run(arguments + run_folder.string() + " --fresh --quiet").code, 0);
  fs::remove(run_folder / "summary.json");
  EXPECT_TRUE(fs::exists(run_folder / "ckpt/step-12/manifest.json"));
  const Result other =
      run("train" + tiny + "--epochs 4 --set model.mlp=96 --out " + run_folder.string());
  EXPECT_EQ(other.code, 4) << other.err;
  EXPECT_NE(other.err.find("another run"), std::string::npos) << other.err;
  std::string damaged = read(run_folder / "ckpt/step-12/rank-0.safetensors");
  damaged[damaged.size() / 2] ^= 1;
  write(run_folder / "ckpt/step-12/rank-0.safetensors", damaged);
  write(run_folder / "ckpt/step-9/manifest.json", R"({"identity": 3})");
  const Result rest = run(arguments + run_folder.string());
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_NE(rest.err.find("resumed from step 6"), std::string::npos) << rest.err;
  EXPECT_NE(rest.err.find("passed over"), std::string::npos) << rest.err;
  EXPECT_EQ(read(run_folder / "weights.safetensors"), read(whole / "weights.safetensors"));
  EXPECT_EQ(json::parse(read(run_folder / "summary.json"))["epochs"].size(), 4u);
}

}  // namespace
}  // namespace tessera::test::cli_test
