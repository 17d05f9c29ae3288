// Pipelines from outside: stages that are processes or threads train, evaluate and go on like one
// rank, and a schedule that cannot run is refused before anything starts. Convention: f64, so that
// equal means to 1e-9; the last batch has fewer samples than micro-batches.
#include <gtest/gtest.h>

#include <cmath>

#include "app/binary.h"

namespace tessera::test::pipeline_test {
namespace {

const std::string model =
    " --model vit_micro --set model.dim=16 --set model.mlp=32 --set model.heads=2 --set "
    "model.depth=4 --set model.head_init=normal";
const std::string small = model +
                          " --dtype f64 --threads 1 --set data.train_size=19 --set "
                          "data.test_size=13 --global-batch 8 --accumulate 4 --set ema.decay=0.5"
                          " --set lr.schedule=constant --set lr.warmup=0 --quiet ";

double relative(const json& a, const json& b) {
  return std::abs(a.get<double>() - b.get<double>()) / std::max(1e-12, std::abs(b.get<double>()));
}

// The same steps and the same evaluation after each epoch.
void expect_same_run(const fs::path& got, const fs::path& want) {
  for (const auto& [kind, keys] :
       {std::pair<std::string, std::vector<const char*>>{"step", {"loss", "grad_norm", "top1"}},
        {"epoch", {"loss", "test_loss", "test_top1", "test_top5"}}}) {
    const auto a = lines_of(got, kind), b = lines_of(want, kind);
    ASSERT_EQ(a.size(), b.size()) << kind;
    ASSERT_FALSE(a.empty());
    for (std::size_t i = 0; i < a.size(); ++i)
      for (const char* key : keys)
        EXPECT_LE(relative(a[i][key], b[i][key]), 1e-9) << kind << " " << i + 1 << " " << key;
  }
}

const fs::path& one_rank() {
  static const fs::path folder = [] {
    const fs::path out = scratch() / "pipeline_one";
    const Result r = run("train" + small + "--epochs 3 --fresh --out " + out.string());
    EXPECT_EQ(r.code, 0) << r.err;
    return out;
  }();
  return folder;
}

// The plan is what was taken and sent, on every stage.
void expect_as_planned(const fs::path& out, const std::string& layout) {
  const json summary = json::parse(read(out / "summary.json"));
  for (const json& rank : summary["ranks"])
    EXPECT_EQ(rank["peak_bytes"]["planned"], rank["peak_bytes"]["measured"]) << layout;
  const Result r =
      run("explain --json --no-program" + small.substr(0, small.find("--quiet")) + layout);
  ASSERT_EQ(r.code, 0) << r.err;
  const json explained = json::parse(r.out);
  EXPECT_EQ(explained["comm_bytes"], lines_of(out, "step")[0]["comm_bytes"]) << layout;
  EXPECT_EQ(explained["run"]["ranks"]["most"], summary["peak_bytes"]["planned"]) << layout;
}

TEST(Pipeline, OverMpi) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const fs::path out = scratch() / "pipeline_mpi";
  const Result r =
      run("train" + small + "--np 2 --pp 2 --comm mpi --set run.trace=2 --epochs 3 --fresh --out " +
          out.string());
  ASSERT_EQ(r.code, 0) << r.err;
  expect_same_run(out, one_rank());
  expect_as_planned(out, "--pp 2");
  const json summary = json::parse(read(out / "summary.json"));
  EXPECT_EQ(summary["layout"]["pp"], 2);
  EXPECT_EQ(summary["comm"]["send"]["count"], 3);  // of the last step, which has three samples
  EXPECT_FALSE(json::parse(read(out / "trace.json"))["traceEvents"].empty());
  EXPECT_EQ(run("ckpt verify " + out.string()).code, 0);
  // The weights are whole, and those of one rank.
  const Result diff = run("ckpt diff --json " + (out / "weights.safetensors").string() + " " +
                          (one_rank() / "weights.safetensors").string());
  const json differences = json::parse(diff.out);
  for (const json& tensor : differences["tensors"])
    EXPECT_TRUE(tensor["status"] == "equal" || tensor["max_abs"].get<double>() < 1e-8) << tensor;
}

TEST(Pipeline, EveryScheduleAndMesh) {
  const fs::path file = scratch() / "forth_and_back.txt";
  write(
      file,
      "schedule forth-and-back stages=4 micros=4\n"
      "rank 0: F0.0 F0.1 F3.0 B3.0 F3.1 B3.1 F0.2 F0.3 B0.0 B0.1 F3.2 B3.2 F3.3 B3.3 B0.2 B0.3\n"
      "rank 1: F1.0 F2.0 F1.1 F2.1 B2.0 B1.0 B2.1 B1.1 F1.2 F2.2 F1.3 F2.3 B2.2 B1.2 B2.3 B1.3\n");
  const std::string swapped = (scratch() / "swapped.txt").string();
  write(swapped,
        "schedule swapped stages=2 micros=4\nrank 1: F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.2 B0.3\nrank "
        "0: F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 "
        "B1.3\n");
  const std::string two = "--np 2 --pp 2 ", files = two + "--schedule file:";
  for (const std::string& layout :
       {two + "--schedule gpipe --set parallel.stages=params", two + "--schedule interleaved",
        two + "--set parallel.stages=time", files + file.string() + " --set parallel.chunks=2",
        files + swapped + " --set parallel.stages=[1,3]",
        std::string("--np 4 --pp 2 --dp 2 --zero 3 --schedule zb --set parallel.persist=100"),
        std::string("--set parallel.segments=2")}) {
    SCOPED_TRACE(layout);
    const fs::path out = scratch() / "pipeline_layouts";
    const Result r =
        run("train" + small + layout + " --comm local --epochs 3 --fresh --out " + out.string());
    ASSERT_EQ(r.code, 0) << r.err;
    expect_same_run(out, one_rank());
    if (layout.find("time") == layout.npos)
      expect_as_planned(out, layout.starts_with("--np") ? layout.substr(7) : layout);
  }
}

// The schedule is the run's, whatever becomes of its file.
TEST(Pipeline, ScheduleFilesAreKeptWithTheRun) {
  const fs::path file = scratch() / "kept.txt", out = scratch() / "pipeline_kept",
                 moved = scratch() / "pipeline_moved";
  const std::string text =
      "schedule kept stages=2 micros=4\nrank 0: F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.2 B0.3\n"
      "rank 1: F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3\n";
  write(file, text);
  const std::string train = "train" + small + "--np 2 --pp 2 --comm local --epochs 1 --out " +
                            out.string(),
                    asked = train + " --schedule file:" + file.string();
  ASSERT_EQ(run(asked + " --fresh").code, 0);
  EXPECT_EQ(read(out / "schedule.txt"), text);
  EXPECT_EQ(run(asked).code, 0);  // the same file is the same configuration
  write(file, "no schedule");
  EXPECT_EQ(run("train " + (out / "resolved.toml").string() + " --quiet").code, 0);
  const Result again = run("train " + (out / "resolved.toml").string() + " --quiet --fresh");
  EXPECT_EQ(again.code, 0) << again.err;
  write(file, "# another\n" + text);
  const Result other = run(asked);
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("now asked: parallel.schedule = \"file:"), std::string::npos)
      << other.err;
  fs::remove(file);
  fs::remove_all(moved);
  fs::rename(out, moved);
  const Result explained = run("explain --run " + moved.string());
  EXPECT_EQ(explained.code, 0) << explained.err;
  EXPECT_NE(explained.out.find("pipeline: kept, 2 stages on 2 ranks"), std::string::npos)
      << explained.out;
}

// A checkpoint of stages goes on as anything else, and the other way round.
TEST(Pipeline, GoesOnUnderOtherLayouts) {
  const fs::path out = scratch() / "pipeline_resumed";
  const auto train = [&](const std::string& layout) {
    const Result r = run("train" + small + layout + " --comm local --out " + out.string());
    EXPECT_EQ(r.code, 0) << layout << "\n" << r.err;
    fs::remove(out / "summary.json");  // as if it had been stopped there
  };
  train("--np 2 --pp 2 --epochs 1");
  train("--np 4 --dp 2 --pp 2 --zero 1 --schedule zb --epochs 2");
  EXPECT_EQ(run("ckpt verify " + out.string()).code, 0);
  train("--np 1 --epochs 3");
  expect_same_run(out, one_rank());
}

TEST(Pipeline, SchedulesThatCannotRun) {
  const fs::path file = scratch() / "wrong.txt", out = scratch() / "pipeline_wrong";
  struct Case {
    std::string text, says;
  };
  const std::string head = "schedule mine stages=2 micros=4\n",
                    good = "rank 1: F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3\n";
  for (const Case& c :
       {Case{head + "rank 0: F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3\nrank 1: F1.0 F1.1 F1.2 F1.3 "
                    "B1.0 B1.1 B1.2 B1.3\n",
             "deadlock: rank 0 waits in B0.0 for B1.0 of rank 1"},
        {head + "rank 0: F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.3\n" + good, "B0.2 is missing"},
        {head + "rank 0: F0.1 F0.0 F0.2 F0.3 B0.0 B0.1 B0.2 B0.3\n" + good,
         "rank 0, turn 2: F0.0 comes after F0.1"},
        {head + "rank 0: F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 G0.2 B0.3\n" + good, "wrong.txt:2:"},
        {"schedule mine stages=2 micros=1\nrank 0: F0.0 B0.0\nrank 1: F1.0 B1.0\n",
         "the schedule has 1 micro-batches, the run has 4"},
        {head + "rank 0: F0.0 F0.1 F0.2 F0.3\nrank 1: F1.0 F1.1 F1.2 F1.3\n",
         "the schedule has no backward turns"}}) {
    write(file, c.text);
    std::vector<std::string> commands = {"explain --no-program", "config check",
                                         "train --np 2 --comm local --out " + out.string()};

    if (has_mpirun()) commands.push_back("train --np 2 --comm mpi --out " + out.string());
    for (const std::string& command : commands) {
      const Result r = run(
          command + model +
          " --epochs 1 --global-batch 8 --accumulate 4 --pp 2 --schedule file:" + file.string());
      EXPECT_EQ(r.code, 2) << command << "\n" << r.err;
      EXPECT_NE(r.err.find(c.says), std::string::npos) << command << "\n" << r.err;
      EXPECT_EQ(r.err.find("error:"), r.err.rfind("error:")) << r.err;
      EXPECT_FALSE(fs::exists(out)) << command;
    }
  }
  const Result missing =
      run("train" + model +
          " --epochs 1 --np 2 --pp 2 --schedule file:/nowhere --comm local --out " + out.string());
  EXPECT_EQ(missing.code, 2) << missing.err;
  EXPECT_NE(missing.err.find("cannot open the file"), std::string::npos) << missing.err;
}

TEST(Pipeline, Inference) {
  const std::string weights = " --dtype f64 --threads 1 --weights " + one_rank().string();
  const std::string eval = "eval --json --data synthetic --test-size 13 --batch 8" + weights;
  const json one = json::parse(run(eval).out);
  for (const std::string layout :
       {" --np 2 --pp 2", " --np 4 --pp 2 --dp 2", " --np 4 --pp 2 --tp 2"}) {
    const Result r = run(eval + layout + " --comm local");
    ASSERT_EQ(r.code, 0) << layout << "\n" << r.err;
    const json several = json::parse(r.out);
    EXPECT_LE(relative(several["loss"], one["loss"]), 1e-9) << layout;
    for (const char* key : {"images", "top1", "top5", "classes"})
      EXPECT_EQ(several[key], one[key]) << layout << ": " << key;
  }
  const std::string predict = "predict " TESSERA_SOURCE_DIR "/tests/golden/disc.png" +
                              weights;  // one image: one micro-batch
  const Result alone = run(predict), stages = run(predict + " --np 2 --pp 2 --comm local");
  EXPECT_EQ(stages.code, 0) << stages.err;
  EXPECT_EQ(json::parse(alone.out)["top"][0]["label"], json::parse(stages.out)["top"][0]["label"]);
  for (const char* batch : {"1", "5"}) {
    const Result r =
        run("bench infer --json --check --repeats 1 --dtype f64 --threads 1 --np 2 --pp 2 --comm "
            "local" +
            model + " --batch " + batch);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_LE(json::parse(r.out)["logits_difference"].get<double>(), 1e-9);
  }
}

}  // namespace
}  // namespace tessera::test::pipeline_test
