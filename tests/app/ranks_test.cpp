// Several ranks from outside: --np and mpirun give the losses of one process, and wrong launches
// end at once with one clear error.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "app/binary.h"
#include "config/study.h"
#include "plain_mpirun.h"
#include "wait_until.h"

namespace tessera::test::ranks_test {
namespace {

const std::string data =
    " --set data.train_size=64 --set data.test_size=20 --global-batch "
    "16 "
    "--epochs 1 --quiet ";

const std::string small = data + on_device() +
                          "--model vit_micro --set model.depth=1 --set model.head_init=normal ",
                  single = small + "--threads 1 ";

// As a user would type it; root and more ranks than cores are normal in a container.
Result mpirun(int ranks, const std::string& arguments) {
  const fs::path err = scratch() / "stderr_mpi";
  const std::string command =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      "OMPI_MCA_rmaps_base_oversubscribe=1 ASAN_OPTIONS=detect_leaks=0 timeout "
      "120 mpirun -np " +
      std::to_string(ranks) + " " + TESSERA_BINARY + " " + arguments + " >/dev/null 2>" +
      err.string();
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, "", read(err)};
}

void expect_same_losses(const fs::path& one, const fs::path& other) {
  const auto a = lines_of(one, "step"), b = lines_of(other, "step");
  ASSERT_EQ(a.size(), 4u);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i]["loss"].get<double>(), b[i]["loss"].get<double>(), 1e-5) << "step " << i + 1;
    EXPECT_NEAR(a[i]["grad_norm"].get<double>(), b[i]["grad_norm"].get<double>(), 1e-4)
        << "step " << i + 1;
    EXPECT_EQ(a[i]["top1"], b[i]["top1"]);
  }
}

const fs::path& one_rank() {
  static const fs::path folder = [] {
    const fs::path out = scratch() / "ranks_one";
    EXPECT_EQ(run("train" + single + "--fresh --out " + out.string()).code, 0);
    return out;
  }();
  return folder;
}

TEST(Ranks, AsThreads) {
  const fs::path out = scratch() / "ranks_threads";
  const Result r =
      run("train" + single +
          "--np 4 --dp 2 --tp 2 --zero 3 --set parallel.persist=100 --comm local --fresh --out " +
          out.string());
  ASSERT_EQ(r.code, 0) << r.err;
  expect_same_losses(one_rank(), out);
  const json summary = json::parse(read(out / "summary.json"));
  EXPECT_EQ(summary["world"], 4);
  EXPECT_EQ(summary["layout"]["tp"], 2);
  EXPECT_GT(summary["comm"]["all_gather"]["bytes"].get<std::int64_t>(), 0);
  EXPECT_EQ(run("ckpt verify " + out.string()).code, 0);
  // A finished run is finished for any number of ranks that asks the same.
  EXPECT_EQ(run("train" + single +
                "--np 4 --dp 2 --tp 2 --zero 3 --set parallel.persist=100 --comm local --out " +
                out.string())
                .code,
            0);
}

TEST(Ranks, StartedHereThroughMpirun) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const fs::path out = scratch() / "ranks_np";
  const Result r =
      run("train" + small + "--np 3 --threads 16 --zero 2 --fresh --out " + out.string());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("warning: 3 ranks x 16 threads on"), std::string::npos) << r.err;
  expect_same_losses(one_rank(), out);
  EXPECT_EQ(json::parse(read(out / "summary.json"))["world"], 3);
}

// Running statistics, their average and its recalibration: every rank has its part in them.
TEST(Ranks, ByEveryAlgorithm) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  for (const std::string algorithm : {"shared", "ring", "mpi"}) {
    const fs::path out = scratch() / ("ranks_by_" + algorithm);
    const Result r =
        run("train" + single + "--np 2 --zero 1 --comm mpi --set parallel.all_reduce=" + algorithm +
            " --fresh --out " + out.string());
    ASSERT_EQ(r.code, 0) << r.err;
    expect_same_losses(one_rank(), out);
  }
}

// Half the bytes of every large sum, and nearly the same losses.
TEST(Ranks, RoundedOnTheRing) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  std::map<std::string, json> sent;
  std::map<std::string, std::vector<json>> steps;
  for (const std::string wire : {"f32", "bf16"}) {
    const fs::path out = scratch() / ("ranks_wire_" + wire);
    const Result r =
        run("train" + single +
            "--np 2 --comm mpi --set parallel.all_reduce=ring --set parallel.wire=" + wire +
            " --fresh --out " + out.string());
    ASSERT_EQ(r.code, 0) << r.err;
    sent[wire] = json::parse(read(out / "summary.json"))["comm"];
    steps[wire] = lines_of(out, "step");
  }
  EXPECT_EQ(sent["f32"]["all_reduce"], sent["bf16"]["all_reduce"]);
  const double whole = sent["f32"]["messages"]["bytes"].get<double>(),
               half = sent["bf16"]["messages"]["bytes"].get<double>();
  EXPECT_GE(half, whole / 2);
  EXPECT_LT(half, whole * 0.6);
  ASSERT_EQ(steps["f32"].size(), steps["bf16"].size());
  EXPECT_EQ(steps["f32"][0]["loss"], steps["bf16"][0]["loss"]);  // scalars travel whole
  EXPECT_NE(steps["f32"][0]["grad_norm"], steps["bf16"][0]["grad_norm"]);
  for (std::size_t i = 0; i < steps["f32"].size(); ++i)
    EXPECT_NEAR(steps["f32"][i]["loss"].get<double>(), steps["bf16"][i]["loss"].get<double>(),
                0.02);
}

TEST(Ranks, BenchComm) {
  for (const std::string comm : {"local", "mpi"}) {
    if (comm == "mpi" && !has_mpirun()) GTEST_SKIP() << "there is no mpirun";
    const Result r = run("bench comm --np 2 --comm " + comm +
                         " --min-bytes 4KB --max-bytes 64KB --repeats 2 --machines 2 --json");
    ASSERT_EQ(r.code, 0) << r.err;
    const json b = json::parse(r.out);
    EXPECT_EQ(b["ranks"], 2);
    ASSERT_EQ(b["sizes"].size(), 3u);
    for (const json& row : b["sizes"][2]["rows"]) {
      EXPECT_GT(row["us"]["median"], 0.0) << row;
      EXPECT_GT(row["times_faster_than_" + comm], 0.0) << row;
    }
    for (const std::string sizes : {" --min-bytes 1MB --max-bytes 64KB", " --max-bytes 4",
                                    " --min-bytes 100 --max-bytes 200"}) {
      const Result refused = run("bench comm --np 2 --comm " + comm + sizes);
      EXPECT_EQ(refused.code, 2) << sizes << refused.err;
      EXPECT_NE(refused.err.find("there is nothing to measure from --min-bytes"), std::string::npos)
          << refused.err;
    }
  }
  const Result card = run("bench comm --np 2 --comm local --device cuda");
  EXPECT_EQ(card.code, 2) << card.err;
  EXPECT_NE(card.err.find("between memory of the host"), std::string::npos) << card.err;
  // Bytes are those that move: 8 are two numbers, too few for three ranks; of 64, 60 are three
  // equal parts.
  const json parts = json::parse(
      run("bench comm --np 3 --comm local --verb all_gather --max-bytes 64 --repeats 2 --json")
          .out);
  ASSERT_EQ(parts["sizes"].size(), 1u);
  EXPECT_EQ(parts["sizes"][0]["bytes"], 60);
}

TEST(Ranks, AResNetWithAnAverage) {
  const std::string arguments =
      "train" + data +
      "--model resnet_micro_cifar --set model.batch_norm=sync --set ema.decay=0.9 --threads 1 ";
  const fs::path one = scratch() / "ranks_resnet_one", two = scratch() / "ranks_resnet_two";
  ASSERT_EQ(run(arguments + "--fresh --out " + one.string()).code, 0);
  const Result r =
      run(arguments + "--np 4 --dp 2 --tp 2 --zero 1 --comm local --fresh --out " + two.string());
  ASSERT_EQ(r.code, 0) << r.err;
  const json a = json::parse(read(one / "summary.json"))["final"],
             b = json::parse(read(two / "summary.json"))["final"];
  EXPECT_NEAR(a["test_loss"].get<double>(), b["test_loss"].get<double>(),
              0.05 * a["test_loss"].get<double>());
  EXPECT_NEAR(lines_of(one, "step")[0]["loss"].get<double>(),
              lines_of(two, "step")[0]["loss"].get<double>(), 1e-5);
}

// Asked to stop, all ranks save one checkpoint together and end with 75; another layout goes on
// from it.
TEST(Ranks, StoppedAndGoneOnWithAnotherLayout) {
  const fs::path out = scratch() / "ranks_stop";
  const std::string arguments =
      "train --model vit_micro --set model.depth=1 --set data.train_size=256 --set "
      "data.test_size=20 --global-batch 16 "
      "--epochs 60 --threads 1 --quiet --out " +
      out.string();
  {
    Process process(arguments + " --np 2 --zero 3 --set parallel.persist=100" +
                    (has_mpirun() ? "" : " --comm local"));
    wait_until([&] { return lines_of(out, "step").size() >= 5; });
    process.signal(SIGTERM);
    EXPECT_EQ(process.wait(), 75);
  }
  EXPECT_EQ(run("ckpt verify " + out.string()).code, 0);
  const std::size_t before = lines_of(out, "step").size();
  Process process(arguments + " --np 4 --dp 2 --tp 2 --comm local", scratch() / "ranks_stop_log");
  wait_until([&] { return lines_of(out, "step").size() >= before + 5; });
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75) << read(scratch() / "ranks_stop_log");
  const auto steps = lines_of(out, "step");
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i]["step"], i + 1);
  EXPECT_GT(steps.size(), before);
}

TEST(Ranks, UnderMpirun) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const fs::path out = scratch() / "ranks_mpirun";
  const Result r = mpirun(2, "train" + single + "--fresh --out " + out.string());
  ASSERT_EQ(r.code, 0) << r.err;
  expect_same_losses(one_rank(), out);
}

// The ViT study's DeepSpeed file, as it stands in its appendix: accepted by two ranks, refused by
// three with the equation.
TEST(Ranks, TheStudysDeepSpeedFile) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const fs::path ds = scratch() / "ds_study.json", out = scratch() / "ranks_study";
  write(ds, std::string(study));
  const std::string arguments =
      "train --model vit_micro --set data.train_size=64 --set data.test_size=20 --epochs 1 --fresh "
      "--deepspeed " +
      ds.string() + " --out " + out.string();
  const Result two = mpirun(2, arguments);
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_NE(two.err.find("micro_batch_per_gpu"), std::string::npos);
  const Result three = mpirun(3, arguments);
  EXPECT_EQ(of_plain_mpirun(three.code, 2), 2) << three.err;
  EXPECT_NE(three.err.find("!="), std::string::npos) << three.err;
}

// Every launch that cannot be meant: exit 2, one error, nothing hung, nothing written.
TEST(Ranks, WrongLaunches) {
  const fs::path out = scratch() / "ranks_wrong";
  const auto refused = [&](const std::string& arguments, const std::string& says) {
    const std::string model = arguments.find("--model") == arguments.npos ? small : data;
    const Result r = run("train" + model + arguments + " --out " + out.string());
    EXPECT_EQ(r.code, 2) << arguments << "\n" << r.err;
    EXPECT_NE(r.err.find(says), std::string::npos) << arguments << "\n" << r.err;
    EXPECT_EQ(r.err.find("error:"), r.err.rfind("error:")) << r.err;
    EXPECT_FALSE(fs::exists(out)) << arguments;
  };
  refused("--np 4 --dp 3", "dp");
  refused("--np 2 --tp 3", "tp");
  refused("--np 3 --tp 2", "tp");
  refused("--np 2 --comm nccl", "comm");
  refused("--np 2 --sp 2 --model swin_micro", "sp");
  refused("--np 0", "np");
  refused("--tp 5", "heads");
  refused("--np 2 --pp 2", "pp");
  refused("--zero 4", "zero");
  refused("--np 2 --dp 2 --set parallel.sequence=megatron", "sequence");
  if (!has_mpirun()) return;
  const auto refused_by = [&](int ranks, const std::string& arguments, const std::string& says) {
    const Result r = mpirun(ranks, "train" + small + arguments + " --out " + out.string());
    EXPECT_EQ(of_plain_mpirun(r.code, 2), 2) << arguments << "\n" << r.err;
    EXPECT_NE(r.err.find(says), std::string::npos) << arguments << "\n" << r.err;
    EXPECT_EQ(r.err.find("error:"), r.err.rfind("error:")) << r.err;
    EXPECT_FALSE(fs::exists(out)) << arguments;
  };
  refused_by(3, "--dp 2", "3 ranks");
  refused_by(2, "--tp 4", "ranks");
  refused_by(2, "--np 3", "np");
  refused_by(2, "--comm local", "local");
  // A mistake of every rank is said once, too.
  const Result missing =
      mpirun(2, "train" + small + "--data cifar10:/nowhere --out " + out.string());
  EXPECT_EQ(of_plain_mpirun(missing.code, 3), 3) << missing.err;
  EXPECT_EQ(missing.err.find("error:"), missing.err.rfind("error:")) << missing.err;
}

// mpirun ends with a code of its own where it cannot start a rank; it is said, as a lost rank.
TEST(Ranks, AHostThatIsNotThere) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  write(scratch() / "no_hosts", "no..host slots=2\n");
  const Result r = run("train" + small + "--np 2 --hostfile " + (scratch() / "no_hosts").string() +
                       " --out " + (scratch() / "ranks_nowhere").string());
  EXPECT_EQ(r.code, 7) << r.err;
  EXPECT_NE(r.err.find("and no rank has begun"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("tessera doctor --hostfile"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace tessera::test::ranks_test
