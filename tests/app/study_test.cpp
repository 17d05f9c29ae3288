// `tessera study` from outside: it survives what kills it, goes on where it was, tells what failed,
// and steers no terminal.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "app/binary.h"
#include "wait_until.h"

namespace tessera::test::study_test {
namespace {

const std::string base =
    "[base]\nmodel.name = \"vit_micro\"\nmodel.depth = 1\ndata.source = "
    "\"synthetic\"\ndata.train_size = 64\ndata.test_size = 32\n"
    "batch.global = 32\nrun.epochs = 2\nrun.threads = 1\nrun.tensorboard = false\n";
const std::string small =
    "[study]\nname = \"small\"\nrepeats = 2\ntime_limit = 300\n" + base +
    "[[part]]\nname = \"rates\"\nkind = \"accuracy\"\ngrid = { \"optim.lr\" = [0.001, 0.01] }\n"
    "[[part]]\nname = \"rows\"\nkind = \"techniques\"\n[[part.technique]]\nname = \"one "
    "rank\"\n[[part.technique]]\nname = "
    "\"two ranks\"\nset = { \"run.np\" = 2, \"parallel.comm\" = \"local\" }\n";

fs::path file_of(const std::string& name, const std::string& text) {
  write(scratch() / (name + ".toml"), text);
  return scratch() / (name + ".toml");
}

// These must not depend on when they were measured.
std::set<std::string> results(const json& document) {
  std::set<std::string> out;
  for (const json& part : document["parts"])
    for (const json& point : part["points"])
      for (const json& r : point["runs"])
        out.insert(part["name"].dump() + point["technique"].dump() + point["axes"].dump() +
                   r["repeat"].dump() + r["outcome"].dump() + r["loss"].dump() +
                   r["test_loss"].dump() + r["test_top1"].dump());
  return out;
}

TEST(Study, KilledItEndsWithTheSameTable) {
  const fs::path file = file_of("small", small), whole = scratch() / "study_whole",
                 parts = scratch() / "study_parts";
  const Result alone = run("study " + file.string() + " --json --quiet --out " + whole.string());
  ASSERT_EQ(alone.code, 0) << alone.err;
  const json document = json::parse(alone.out);
  EXPECT_EQ(document["done"], 8);
  EXPECT_TRUE(fs::exists(document["page"].get<std::string>()));
  const auto expected = results(document);
  EXPECT_EQ(expected.size(), 8u);
  std::mt19937_64 random(3);
  for (int kills = 0; kills < 3; ++kills) {
    Process process("study " + file.string() + " --quiet --json --out " + parts.string() +
                    " >/dev/null");
    std::this_thread::sleep_for(std::chrono::milliseconds(200 + random() % 1500));
    process.signal(SIGKILL);
    process.wait();
  }
  const Result last = run("study " + file.string() + " --json --quiet --out " + parts.string());
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_EQ(results(json::parse(last.out)), expected);
  // Nothing is left to do, and nothing is done again.
  const Result again = run("study " + file.string() + " --json --quiet --out " + parts.string());
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(json::parse(again.out)["parts"], json::parse(last.out)["parts"]);
  // More of it: only the new runs are made.
  file_of("small", small +
                       "[[part]]\nname = \"more\"\nkind = \"batch\"\nrepeats = 1\ngrid = { "
                       "\"batch.global\" = [16] }\n");
  const json more =
      json::parse(run("study " + file.string() + " --json --quiet --out " + parts.string()).out);
  EXPECT_EQ(more["done"], 9);
  for (const json& point : more["parts"][0]["points"])
    for (const json& r : point["runs"]) EXPECT_GE(r["attempts"].get<int>(), 1);
  EXPECT_EQ(more["parts"][0], json::parse(last.out)["parts"][0]);
  // Checkpoints and weights are gone, what a page needs is there.
  for (const json& point : more["parts"][0]["points"])
    for (const json& r : point["runs"]) {
      const fs::path folder = parts / r["folder"].get<std::string>();
      EXPECT_TRUE(fs::exists(folder / "metrics.jsonl")) << folder;
      EXPECT_FALSE(fs::exists(folder / "ckpt")) << folder;
      EXPECT_FALSE(fs::exists(folder / "weights.safetensors")) << folder;
    }
  // Another warm-up: speeds are counted again from what the runs left, and nothing is run.
  for (const json& point : more["parts"][0]["points"])
    for (const json& r : point["runs"]) {
      const fs::path metrics = parts / r["folder"].get<std::string>() / "metrics.jsonl";
      std::istringstream lines(read(metrics));
      std::string text;
      for (std::string line; std::getline(lines, line);) {
        json entry = json::parse(line);
        if (entry["kind"] == "step") entry["step_ms"] = 10.0 * entry["step"].get<double>();
        text += entry.dump() + "\n";
      }
      write(metrics, text);
    }
  std::string counted = small +
                        "[[part]]\nname = \"more\"\nkind = \"batch\"\nrepeats = 1\ngrid = { "
                        "\"batch.global\" = [16] }\n";
  counted.insert(counted.find("repeats"), "warmup = 1\n");
  file_of("small", counted);
  const json anew =
      json::parse(run("study " + file.string() + " --json --quiet --out " + parts.string()).out);
  EXPECT_EQ(results(anew), results(more));
  for (std::size_t p = 0; p < more["parts"][0]["points"].size(); ++p)
    for (std::size_t r = 0; r < 2; ++r) {
      const json &before = more["parts"][0]["points"][p]["runs"][r],
                 &after = anew["parts"][0]["points"][p]["runs"][r];
      EXPECT_EQ(before["attempts"], after["attempts"]);
      EXPECT_NEAR(after["images_per_s"].get<double>(), 32 / 0.030,
                  1e-6);  // steps 2, 3 and 4 count: 20, 30 and 40 ms
    }
  const json listed =
      json::parse(run("study " + file.string() + " --json --list --out " + parts.string()).out);
  EXPECT_EQ(listed["would_run"], 0);
  for (const json& r : listed["runs"]) EXPECT_EQ(r["status"], "done");
  const Result page =
      run("report " + parts.string() + " --json --out " + (scratch() / "page").string());
  EXPECT_EQ(page.code, 0) << page.err;
  EXPECT_EQ(results(json::parse(page.out)), results(more));
}

TEST(Study, AFailedRunIsToldAndTheOthersGoOn) {
  const fs::path file = file_of(
      "failing", "[study]\nname = \"failing\"\n" + base +
                     "[[part]]\nname = \"rows\"\nkind = \"techniques\"\n[[part.technique]]\nname = "
                     "\"no data\"\nset = { \"data.source\" = "
                     "\"cifar10:nowhere\" }\n[[part.technique]]\nname = \"good\"\n[[part]]\nname = "
                     "\"slow\"\nkind = \"accuracy\"\ntime_limit = 1\n"
                     "set = { \"run.epochs\" = 1000000 }\n");
  const fs::path out = scratch() / "study_failing";
  const Result r = run("study " + file.string() + " --json --out " + out.string());
  EXPECT_EQ(r.code, 1) << r.err;
  const json document = json::parse(r.out);
  EXPECT_EQ(document["done"], 1);
  EXPECT_EQ(document["failed"], 2);
  const json bad = document["parts"][0]["points"][0]["runs"][0],
             slow = document["parts"][1]["points"][0]["runs"][0];
  EXPECT_EQ(bad["outcome"], "failed");
  EXPECT_NE(bad["reason"].get<std::string>().find("exit code 3"), std::string::npos)
      << bad["reason"];
  EXPECT_NE(bad["reason"].get<std::string>().find("nowhere"), std::string::npos) << bad["reason"];
  EXPECT_NE(slow["reason"].get<std::string>().find("time limit of 1 s"), std::string::npos)
      << slow["reason"];
  EXPECT_NE(r.err.find("[3/3]"), std::string::npos) << r.err;  // in a pipe a line per run
  EXPECT_EQ(run("study " + file.string() + " --quiet --out " + out.string()).code, 1);
  const Result list = run("study " + file.string() + " --list --retry --out " + out.string());
  EXPECT_NE(list.out.find("rows good: done\n"), std::string::npos) << list.out;
  EXPECT_NE(list.out.find("slow: failed\n"), std::string::npos) << list.out;
  EXPECT_NE(list.out.find("\n2 of 3 runs would be made\n"), std::string::npos) << list.out;
  const Result retried =
      run("study " + file.string() + " --retry --only rows --out " + out.string());
  EXPECT_EQ(retried.code, 1);
  EXPECT_NE(retried.err.find("[1/1]"), std::string::npos)
      << retried.err;  // of what this command makes
  EXPECT_EQ(retried.out.find("(exit code 3)", retried.out.find("(exit code 3)") + 1),
            std::string::npos)
      << retried.out;
  const std::string html = read(out / "report.html");
  EXPECT_NE(html.find("tessera study " + file.string() + " --out " + out.string()),
            std::string::npos);
  EXPECT_EQ(html.find("--only rows"), std::string::npos);
  // A run that failed elsewhere is not asked for.
  file_of("failing", read(file) + "[[part]]\nname = \"fine\"\nkind = \"accuracy\"\n");
  const Result fine =
      run("study " + file.string() + " --quiet --json --only fine --out " + out.string());
  EXPECT_EQ(fine.code, 0) << fine.err;
  const json after = json::parse(fine.out);
  EXPECT_EQ(after["parts"][0]["points"][0]["runs"][0]["attempts"], 2);
  EXPECT_EQ(after["parts"][1]["points"][0]["runs"][0]["attempts"], 1);
  // Forgotten is what is asked for, and nothing else.
  const Result anew =
      run("study " + file.string() + " --quiet --json --fresh --only fine --out " + out.string());
  EXPECT_EQ(anew.code, 0) << anew.err;
  const json parts = json::parse(anew.out)["parts"];
  EXPECT_EQ(parts[0], after["parts"][0]);
  EXPECT_EQ(parts[1], after["parts"][1]);
  EXPECT_EQ(parts[2]["points"][0]["runs"][0]["attempts"], 1);
  EXPECT_NE(parts[2], after["parts"][2]);  // another time
  EXPECT_TRUE(fs::exists(out / parts[0]["points"][1]["runs"][0]["folder"].get<std::string>() /
                         "metrics.jsonl"));
}

TEST(Study, StopsOnRequestAndRefusesASecond) {
  const fs::path file = file_of(
      "long",
      "[study]\nname = \"long\"\n" + base +
          "[[part]]\nname = \"a\"\nkind = \"accuracy\"\nset = { \"run.epochs\" = 1000000 }\n");
  const fs::path out = scratch() / "study_long";
  Process process("study " + file.string() + " --quiet --out " + out.string() + " >/dev/null");
  const auto training = [&] {
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(out, error))
      if (entry.path().filename() == "metrics.jsonl" && fs::file_size(entry.path(), error) > 0)
        return true;
    return false;
  };
  wait_until([&] { return training(); });
  ASSERT_TRUE(training());
  const Result second = run("study " + file.string() + " --quiet --out " + out.string());
  EXPECT_EQ(second.code, 2);
  EXPECT_NE(second.err.find("another `tessera study` runs in this folder (pid "), std::string::npos)
      << second.err;
  process.signal(SIGINT);
  EXPECT_EQ(process.wait(), 75);
  const json left = json::parse(run("report --json " + out.string()).out);
  EXPECT_EQ(left["waiting"], 1);
  EXPECT_EQ(left["failed"], 0);
}

TEST(Study, ProblemsComeBeforeAnythingStarts) {
  const fs::path out = scratch() / "study_bad";
  const fs::path file = file_of("bad", "[study]\nname = \"bad\"\n" + base +
                                           "[[part]]\nname = \"a\"\nkind = \"strong\"\ngrid = { "
                                           "\"run.np\" = [1, 2], \"parallel.tp\" = [1, 3] }\n");
  const Result r = run("study " + file.string() + " --out " + out.string());
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find("part a, run.np=2 parallel.tp=3"), std::string::npos) << r.err;
  EXPECT_FALSE(fs::exists(out));
  const Result part =
      run("study " + file_of("good", small).string() + " --only rate --out " + out.string());
  EXPECT_EQ(part.code, 2);
  EXPECT_NE(part.err.find("did you mean rates?"), std::string::npos) << part.err;
  const Result list =
      run("study " + file_of("good", small).string() + " --list --out " + out.string());
  EXPECT_EQ(list.code, 0);
  EXPECT_NE(list.out.find("tessera train --set batch.global=32"), std::string::npos) << list.out;
  EXPECT_FALSE(fs::exists(out));
  // The hostfile is needed to run, not to say what would.
  const std::string hosts = "[launch]\nwith = \"mpirun\"\nhostfile = \"nohosts\"\n";
  const Result many =
      run("study " + file_of("many", small + hosts).string() + " --list --out " + out.string());
  EXPECT_EQ(many.code, 0) << many.err;
  EXPECT_NE(many.out.find("8 of 8 runs would be made"), std::string::npos) << many.out;
  EXPECT_NE(many.err.find("note: the hostfile"), std::string::npos) << many.err;
  EXPECT_EQ(run("study " + (scratch() / "many.toml").string() + " --out " + out.string()).code, 2);
  EXPECT_EQ(run("study " + (scratch() / "none.toml").string()).code, 2);
  EXPECT_EQ(run("report " + scratch().string()).code, 2);
}

TEST(Study, FreshAndReportTouchNothingOfOthers) {
  const fs::path mine = scratch() / "mine";
  fs::create_directories(mine / "data");
  write(mine / "data" / "precious", "x");
  const Result r =
      run("study " + file_of("good", small).string() + " --fresh --out " + mine.string());
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find("study.db"), std::string::npos) << r.err;
  EXPECT_TRUE(fs::exists(mine / "data" / "precious"));
  EXPECT_FALSE(fs::exists(mine / "study.lock"));
  const Result typo = run("report " + (scratch() / "typo").string());
  EXPECT_EQ(typo.code, 2);
  EXPECT_NE(typo.err.find("metrics.jsonl"), std::string::npos) << typo.err;
  EXPECT_FALSE(fs::exists(scratch() / "typo"));
}

TEST(Study, ReportFollowsARunToItsEnd) {
  const fs::path folder = scratch() / "followed";
  fs::create_directories(folder);
  write(folder / "metrics.jsonl", R"({"kind":"step","step":1,"loss":2.0,"step_ms":5.0})"
                                  "\n");
  Process process("report " + folder.string() + " --watch >/dev/null");
  const auto running = [&] {
    return fs::exists(folder / "report.html") &&
           read(folder / "report.html").find(">Running") != std::string::npos;
  };
  wait_until([&] { return running(); });
  EXPECT_TRUE(running());
  write(folder / "new", "{}");
  fs::rename(folder / "new", folder / "summary.json");
  EXPECT_EQ(process.wait(), 0);
  EXPECT_FALSE(running());
  const Result two = run("report " + folder.string() + " " + folder.string() + " --watch");
  EXPECT_EQ(two.code, 2);
  EXPECT_NE(two.err.find("follows one study or run, found 2 folders"), std::string::npos)
      << two.err;
}

TEST(Study, ADryRunShowsWhatALauncherIsTold) {
  const fs::path file = file_of(
      "launched",
      "[study]\nname = \"launched\"\n[launch]\nwith = \"mpirun\"\narguments = [\"sh\", \"-c\", "
      "\"touch x\"]\n" +
          base + "[[part]]\nname = \"a\"\nkind = \"strong\"\ngrid = { \"run.np\" = [1, 2] }\n");
  const std::string folder = (scratch() / "launched").string();
  const Result r = run("study " + file.string() + " --dry-run --out " + folder);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(r.out.starts_with("launch: `mpirun sh -c 'touch x'` starts every run")) << r.out;
  EXPECT_NE(r.out.find("any program"), std::string::npos) << r.out;
  const json document =
      json::parse(run("study " + file.string() + " --dry-run --json --out " + folder).out);
  EXPECT_EQ(document["launch"]["with"], "mpirun");
  EXPECT_EQ(document["launch"]["arguments"], json({"sh", "-c", "touch x"}));
  EXPECT_FALSE(fs::exists(folder));
  std::ifstream manual(std::string(TESSERA_SOURCE_DIR) + "/docs/studies.md");
  std::string title, empty, first;
  std::getline(manual, title);
  std::getline(manual, empty);
  std::getline(manual, first);
  EXPECT_TRUE(first.starts_with("**A study file can start any program**")) << first;
}

TEST(Study, HostileNamesReachNoTerminal) {
  const std::string esc = "\\u001b[31mred\\u0007\\u202e";
  const fs::path file =
      file_of("hostile", "[study]\nname = \"hostile\"\ntitle = \"" + esc + "\"\n" + base +
                             "[[part]]\nname = \"a\"\nkind = \"techniques\"\ngrid = { "
                             "\"data.source\" = [\"folder:\\u202ex" +
                             "\"] }\n[[part.technique]]\nname = \"" + esc + "\"\n");
  const std::string folder = (scratch() / "out'\033[2J").string();
  for (const std::string mode : {"", " --list"}) {
    const Result r = run("study " + file.string() + mode + " --out \"" + folder + "\"");
    EXPECT_EQ(r.code, mode.empty() ? 1 : 0) << r.err;
    for (const std::string& text : {r.out, r.err}) {
      EXPECT_EQ(text.find_first_of("\033\007"), std::string::npos) << mode;
      EXPECT_EQ(text.find("\u202e"), std::string::npos) << mode;
    }
  }
}

}  // namespace
}  // namespace tessera::test::study_test
