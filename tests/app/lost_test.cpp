// The surroundings of a training may go away: its terminal, whoever reads what it says, its
// standard descriptors, its finished results. Nothing of the run is lost by that, and nothing is
// trusted that is not whole.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>

#include "app/binary.h"
#include "data/fixtures.h"
#include "wait_until.h"

namespace tessera::test::lost_test {
namespace {

const std::string steps =
    " --model vit_micro --set model.depth=1 --set data.train_size=64 --set data.test_size=16 "
    "--global-batch 16 --threads 1 "
    "--set checkpoint.every=2 ";

// Through a shell; the exit code, or 128 + signal.
int shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void expect_only_lines(const fs::path& out, std::size_t wanted) {
  std::istringstream lines(read(out / "metrics.jsonl"));
  std::size_t found = 0;
  for (std::string line; std::getline(lines, line); ++found)
    EXPECT_TRUE(json::parse(line, nullptr, false).is_object()) << "in metrics.jsonl: " << line;
  EXPECT_EQ(found, wanted);
}

std::vector<std::string> ways() {
  return has_mpirun() ? std::vector<std::string>{"", " --np 2"} : std::vector<std::string>{""};
}

// The next files that are opened would get the numbers of standard descriptors, and what is said on
// those.
TEST(Lost, ClosedDescriptorsAreNotTakenForOthers) {
  for (const std::string& ranks : ways()) {
    const fs::path out = scratch() / "closed";
    EXPECT_EQ(shell(std::string(TESSERA_BINARY) + " train" + steps + "--epochs 1 --fresh --out " +
                    out.string() + ranks + " <&- >&- 2>&-"),
              0);
    expect_only_lines(out, 5);
    EXPECT_EQ(run("ckpt verify " + out.string()).code, 0);
  }
  EXPECT_EQ(shell(std::string(TESSERA_BINARY) + " models >&- 2>/dev/null"),
            9);  // results that nobody can get are no success
}

// `tessera train ... | head -1`: the reader leaves after a line, the run goes on to its end.
TEST(Lost, AReaderThatLeavesEndsNothing) {
  for (const std::string& ranks : ways()) {
    const fs::path out = scratch() / "reader", code = scratch() / "reader_code";
    shell("( " + std::string(TESSERA_BINARY) + " train" + steps +
          "--epochs 8 --json --fresh --out " + out.string() + ranks + "; echo $? >" +
          code.string() + " ) 2>&1 | head -n 1 >/dev/null");
    EXPECT_EQ(read(code), "0\n") << ranks << read(out / "log.txt");
    EXPECT_TRUE(fs::exists(out / "summary.json")) << ranks;
  }
}

void wait_for_lines(const fs::path& out) {
  wait_until([&] { return lines_of(out, "step").size() >= 3; });
}

// A terminal that is closed: saved and stopped, as on SIGTERM; shells send it more than once.
TEST(Lost, AHangUpIsARequestToStop) {
  for (const std::string& ranks : ways()) {
    const fs::path out = scratch() / "hangup";
    fs::remove_all(out);
    const auto before = std::signal(SIGHUP, SIG_DFL);  // the tests may be run under nohup
    Process process("train" + steps + "--epochs 4000 --quiet --out " + out.string() + ranks,
                    scratch() / "hangup.log");
    std::signal(SIGHUP, before);
    wait_for_lines(out);
    process.signal(SIGHUP);
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    process.signal(SIGHUP);
    EXPECT_EQ(process.wait(), 75) << ranks << read(scratch() / "hangup.log");
    const json newest = json::parse(run("ckpt ls --json " + out.string()).out)[0];
    EXPECT_EQ(newest["step"], lines_of(out, "step").size()) << ranks;
  }
}

TEST(Lost, UnderNohupAHangUpIsNothing) {
  const fs::path out = scratch() / "nohup";
  const auto usual = std::signal(SIGHUP, SIG_IGN);  // inherited
  Process process("train" + steps + "--epochs 4000 --quiet --out " + out.string(),
                  scratch() / "nohup.log");
  std::signal(SIGHUP, usual);
  wait_for_lines(out);
  process.signal(SIGHUP);
  const std::size_t before = lines_of(out, "step").size();
  wait_until([&] { return lines_of(out, "step").size() >= before + 20; });
  EXPECT_GE(lines_of(out, "step").size(), before + 20);
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75);
}

// Results of a finished run that are gone or damaged are made anew, and are the same.
TEST(Lost, FinishedResultsAreProved) {
  const fs::path out = scratch() / "finished", weights = out / "weights.safetensors";
  const std::string train = "train" + steps + "--epochs 2 --out " + out.string();
  ASSERT_EQ(run(train + " --quiet").code, 0);
  const std::string sound = read(weights);
  const json summary = json::parse(read(out / "summary.json"));
  std::string flipped = sound;
  flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 4);
  EXPECT_NE(run(train).err.find("is already finished"), std::string::npos);

  write(weights, flipped);
  const Result verified = run("ckpt verify " + out.string());
  EXPECT_EQ(verified.code, 4);
  EXPECT_NE(verified.out.find("weights.safetensors: BAD: damaged"), std::string::npos)
      << verified.out;
  for (const std::string& verb :
       {"eval --data synthetic --weights " + weights.string(),
        "ckpt diff " + weights.string() + " " + weights.string(),
        "predict --weights " + weights.string() + " " TESSERA_SOURCE_DIR "/tests/golden/disc.png",
        "train" + steps + "--epochs 1 --fresh --init " + out.string() + " --out " +
            (scratch() / "from").string()}) {
    const Result refused = run(verb);
    EXPECT_EQ(refused.code, 4) << verb;
    EXPECT_NE(refused.err.find("damaged: its content has the hash"), std::string::npos)
        << verb << refused.err;
  }
  const std::vector<std::pair<std::string, std::function<void()>>> damages = {
      {"weights.safetensors cannot be used (damaged", [&] { write(weights, flipped); }},
      {"weights.safetensors cannot be used", [&] { fs::resize_file(weights, 1000); }},
      {"weights.safetensors is gone", [&] { fs::remove(weights); }},
      {"summary.json is not what a run writes", [&] { write(out / "summary.json", ""); }}};
  for (const auto& [said, damage] : damages) {
    damage();
    const Result again = run(train);
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_NE(again.err.find(said), std::string::npos) << again.err;
    EXPECT_TRUE(read(weights) == sound) << said;
    EXPECT_EQ(json::parse(read(out / "summary.json"))["final"], summary["final"]);
  }
  EXPECT_EQ(run("ckpt verify " + weights.string()).code, 0);
  // Without a checkpoint there is nothing to make them from: neither trusted nor trained over.
  fs::remove_all(out / "ckpt");
  write(weights, flipped);
  const Result refused = run(train);
  EXPECT_EQ(refused.code, 4) << refused.err;
  EXPECT_NE(refused.err.find("there is no checkpoint to make it from"), std::string::npos)
      << refused.err;
  EXPECT_TRUE(read(weights) == flipped);
}

// Measurements of before a stop that cannot be found any more are said, and never cut away.
TEST(Lost, DamagedMetricsAreSaidAndKept) {
  const fs::path out = scratch() / "metrics";
  const std::string train = "train" + steps + "--out " + out.string() + " --epochs ";
  ASSERT_EQ(run(train + "1 --quiet").code, 0);
  for (const char* name : {"summary.json", "weights.safetensors"}) fs::remove(out / name);
  std::string changed = read(out / "metrics.jsonl");
  changed.at(changed.find("\"loss\":") + 7) = '7';
  std::ofstream(out / "metrics.jsonl") << changed;
  EXPECT_NE(run(train + "1").err.find("metrics.jsonl is damaged: its first"), std::string::npos);
  for (const char* name : {"summary.json", "weights.safetensors"}) fs::remove(out / name);
  fs::resize_file(out / "metrics.jsonl", 300);
  const std::string found = read(out / "metrics.jsonl");
  const Result again = run(train + "2");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.err.find("metrics.jsonl is damaged"), std::string::npos) << again.err;
  EXPECT_TRUE(read(out / "metrics.jsonl.damaged") == found);
  EXPECT_EQ(run("report " + out.string()).code, 0);
}

// A class folder whose name no JSON can hold is refused before anything is trained.
TEST(Lost, AClassThatIsNotUtf8IsRefusedAtOnce) {
  const fs::path data = scratch() / "latin1", out = scratch() / "latin1_run";
  for (const char* name : {"caf\xe9", "tea"}) write_class(data / name, 4);
  const Result refused = run("train --model vit_micro --data folder:" + data.string() +
                             " --epochs 1 --out " + out.string() + " --json");
  EXPECT_EQ(refused.code, 3) << refused.err;
  EXPECT_NE(refused.err.find("'caf\\xe9' is not UTF-8"), std::string::npos) << refused.err;
  EXPECT_EQ(json::parse(refused.out)["exit"], 3);
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace tessera::test::lost_test
