// Ranks that hang and ranks that are lost, from outside: each is named, with its kind; the job ends
// with 6 or 7, nothing of it is left, and the same command goes on to the bits of a run that was
// left alone. What is checked is who is named, never how soon.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "app/binary.h"
#include "plain_mpirun.h"
#include "wait_until.h"

namespace tessera::test::failures_test {
namespace {

using std::chrono::milliseconds;

// A checkpoint every second step, so that most of the time one is being written.
const std::string steps =
    " --model vit_micro --set model.depth=1 --set model.dropout=0.1 --set data.flip=true --set "
    "data.train_size=88 --set data.test_size=16 "
    "--global-batch 32 --threads 1 --set run.eval_every=5 --set checkpoint.every=2 --set "
    "parallel.hang_s=4 --quiet " +
    on_device();

// Every process whose command line names the folder, but for this one.
std::vector<int> processes_of(const fs::path& folder) {
  std::vector<int> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const int pid = std::atoi(entry.path().filename().c_str());
    if (pid > 1 && pid != ::getpid() &&
        read(entry.path() / "cmdline").find(folder.string()) != std::string::npos)
      found.push_back(pid);
  }
  return found;
}

// A training of several ranks in a folder of its own.
class Job {
 public:
  explicit Job(const std::string& name)
      : place_(scratch() / name), log_(scratch() / (name + ".log")) {
    fs::create_directories(place_);
  }

  fs::path out() const { return place_ / "run"; }
  std::string log() const { return read(log_); }
  void start(int ranks, const std::string& more) {
    process_ = std::make_unique<Process>(
        "train" + steps + "--np " + std::to_string(ranks) + more + " --out " + out().string(),
        log_);
  }
  Process& process() { return *process_; }

  // The process of a rank, as soon as it is there.
  int pid_of(int rank) const {
    int pid = -1;
    wait_until([&] {
      for (const fs::path& folder : {place_, out()}) {
        std::error_code error;
        for (const auto& entry : fs::directory_iterator(folder, error)) {
          if (!entry.path().filename().string().starts_with(".ranks-")) continue;
          const json record =
              json::parse(read(entry.path() / ("rank-" + std::to_string(rank))), nullptr, false);
          if (record.is_object()) pid = record["pid"];
        }
      }
      return pid != -1;
    });
    return pid;
  }
  void wait_for_steps(std::size_t n) const {
    wait_until([&] { return lines_of(out(), "step").size() >= n; });
  }

  // The exit code; nothing may be left of it.
  int end() {
    const int code = process_->wait();
    wait_until([&] { return processes_of(place_).empty(); }, std::chrono::minutes(1));
    EXPECT_TRUE(processes_of(place_).empty()) << "processes are left";
    for (const fs::path& folder : {place_, out()}) {
      std::error_code error;
      for (const auto& entry : fs::directory_iterator(folder, error))
        EXPECT_FALSE(entry.path().filename().string().starts_with(".ranks-")) << entry.path();
    }
    return code;
  }

 private:
  fs::path place_, log_;
  std::unique_ptr<Process> process_;
};

// The parent of a rank's process.
int guard_of(int pid) {
  std::istringstream stat(read("/proc/" + std::to_string(pid) + "/stat"));
  std::string skipped;
  int guard = 0;
  stat >> skipped >> skipped >> skipped >> guard;
  return guard;
}

bool says(const std::string& log, const std::string& text) { return log.find(text) != log.npos; }
std::string rank_name(int rank) { return "error: rank " + std::to_string(rank) + " ("; }

// The row says what a signal to a rank must be called, and the exit code.
struct Kind {
  int signal, code;
  std::string says;
};
const std::vector<Kind> hangs = {{SIGSTOP, 6, " is stopped (SIGSTOP"}};
const std::vector<Kind> kills = {{SIGKILL, 7, "killed from outside (SIGKILL)"},
                                 {SIGSEGV, 7, "segmentation fault (SIGSEGV)"},
                                 {SIGABRT, 7, "(SIGABRT)"},
                                 {SIGBUS, 7, "(SIGBUS)"}};

const std::string length = " --epochs 40", short_length = " --epochs 12";  // 120 and 36 steps

// The weights of an undisturbed run of so many ranks, and how long it took.
struct Whole {
  std::string weights;
  std::vector<std::string> losses;
  double seconds = 0;
};
const Whole& whole(int ranks, const std::string& length) {
  static std::map<std::string, Whole> known;
  Whole& w = known[std::to_string(ranks) + length];
  if (!w.weights.empty()) return w;
  const fs::path out = scratch() / ("failures_whole_" + std::to_string(ranks) + length.substr(10));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(run("train" + steps + length + " --np " + std::to_string(ranks) + " --fresh --out " +
                out.string())
                .code,
            0);
  w = {read(out / "weights.safetensors"), losses(out),
       std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
  return w;
}

// Disturbs a run at random moments until that has happened `wanted` times (starting over, with
// another number of ranks, when it ended before that), then lets it end.
void disturb_and_compare(const std::string& name, const std::vector<Kind>& kinds, int wanted,
                         const std::string& length, std::uint64_t seed) {
  // A sanitized binary would take these signals for defects of its own, and end with an exit code.
  ::setenv("ASAN_OPTIONS", "detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_abort=0", 1);
  std::mt19937_64 random(seed);
  const auto any = [&](int n) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(n));
  };
  Job job(name);
  int so_far = 0, writing = 0, too_late = 0, ranks = 2 + any(3);
  for (bool ended = false; so_far < wanted || !ended;) {
    const Whole& undisturbed = whole(ranks, length);
    job.start(ranks, length);
    const bool disturb = so_far < wanted;
    const int rank = any(ranks);
    const Kind& kind = kinds[static_cast<std::size_t>(any(static_cast<int>(kinds.size())))];
    if (disturb) {
      const int pid = job.pid_of(rank);
      ASSERT_GT(pid, 0) << job.log();
      std::this_thread::sleep_for(std::chrono::duration<double>(
          undisturbed.seconds * 0.5 * std::uniform_real_distribution<>(0, 1)(random)));
      ::kill(pid, kind.signal);
    }
    const int code = job.end();
    const std::string log = job.log();
    ended = fs::exists(job.out() / "summary.json");
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(job.out() / "ckpt", error))
      writing += !ended && entry.path().filename().string().starts_with(".part-");
    if (disturb && code != 0) {
      ++so_far;
      ASSERT_EQ(code, kind.code) << "signal " << kind.signal << " to rank " << rank << " of "
                                 << ranks << "\n"
                                 << log;
      ASSERT_TRUE(says(log, rank_name(rank)) && says(log, kind.says))
          << "signal " << kind.signal << " to rank " << rank << "\n"
          << log;
      ASSERT_EQ(log.find("error:"), log.rfind("error:")) << "one speaks\n" << log;
    } else {
      ASSERT_EQ(code, 0) << log;
      too_late += disturb;
    }
    if (!ended) continue;
    ASSERT_EQ(run("train" + steps + length + " --np " + std::to_string(ranks) + " --out " +
                  job.out().string())
                  .code,
              0);  // finished
    ASSERT_EQ(losses(job.out()), undisturbed.losses) << "after " << so_far;
    ASSERT_TRUE(read(job.out() / "weights.safetensors") == undisturbed.weights)
        << "after " << so_far;
    ASSERT_EQ(run("ckpt verify " + job.out().string()).code, 0);
    if (so_far < wanted) {
      fs::remove_all(job.out());
      ranks = 2 + any(3);
    }
  }
  std::printf(
      "%s: %d named, %d of them while a checkpoint was half written; %d signals came after the "
      "end\n",
      name.c_str(), so_far, writing, too_late);
}

int wanted(int otherwise) {
  const char* number = std::getenv("TESSERA_FAILURES");
  return number ? std::atoi(number) : otherwise;
}

TEST(Failures, HangsAreNamed) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  disturb_and_compare("hangs", hangs, 1, short_length, 1);
}
TEST(Failures, LostRanksAreNamed) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  disturb_and_compare("kills", kills, 3, short_length, 2);
}
TEST(Long, HangsAreNamed) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  disturb_and_compare("many_hangs", hangs, wanted(100), length, 3);
}
TEST(Long, LostRanksAreNamed) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  disturb_and_compare("many_kills", kills, wanted(100), length, 4);
}

// A rank that runs but does not go on, in processes, in threads and alone.
TEST(Failures, AHangInsideARankIsNamedWithWhatItDoes) {
  const bool by_nccl = on_device().find("--comm nccl") != std::string::npos;
  for (const std::string& how :
       {std::string(" --np 3"), std::string(" --np 2 --comm local"), std::string(" --np 1")}) {
    if (how == " --np 3" && !has_mpirun()) continue;
    if (by_nccl && how != " --np 3") continue;
    const int rank = how == " --np 1" ? 0 : 1;
    const fs::path out = scratch() / "hang_inside", log = scratch() / "hang_inside.log";
    ::setenv("TESSERA_HANG", (std::to_string(rank) + ":5").c_str(), 1);
    Process process("train" + steps + how + " --epochs 1000 --fresh --out " + out.string(), log);
    ::unsetenv("TESSERA_HANG");
    EXPECT_EQ(process.wait(), 6) << how << read(log);
    EXPECT_TRUE(says(read(log), rank_name(rank))) << how << read(log);
    EXPECT_TRUE(says(read(log), "it is loading the data of step 5")) << how << read(log);
    EXPECT_EQ(says(read(log), rank == 0 ? "error: rank 0" : "for it in all_reduce"), true)
        << how << read(log);
    // With NCCL it is the cards of the others that wait.
    EXPECT_TRUE(!by_nccl || says(read(log), " of nccl dp")) << read(log);
    EXPECT_TRUE(says(read(out / "log.txt"), rank_name(rank))) << how;
    EXPECT_EQ(lines_of(out, "step").size(), 4u) << how;
  }
}

// Nothing is called hanging that is only slow.
TEST(Failures, AStopThatEndsInTimeIsNoHang) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  Job job("short_stop");
  job.start(2, short_length + " --fresh");
  job.wait_for_steps(3);
  const int pid = job.pid_of(1);
  ::kill(pid, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(1000));
  ::kill(pid, SIGCONT);
  EXPECT_EQ(job.end(), 0) << job.log();
}

// As mpirun's users type it: ranks name themselves, without a launcher of ours.
TEST(Failures, UnderPlainMpirun) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  for (const Kind& kind : {hangs[0], kills[0]}) {
    const fs::path out = scratch() / "plain" / std::to_string(kind.signal),
                   log = scratch() / "plain.log";
    const std::string command =
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
        "OMPI_MCA_rmaps_base_oversubscribe=1 mpirun -np 3 " +
        std::string(TESSERA_BINARY) + " train" + steps + "--epochs 10000 --out " + out.string() +
        " >/dev/null 2>" + log.string();
    int code = -1;
    std::thread job([&] {
      const int status = std::system(command.c_str());
      code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    });
    wait_until([&] { return lines_of(out, "step").size() >= 5; });
    const json record = json::parse(read(out / ".pulse/rank-2"), nullptr, false);
    if (record.is_object()) ::kill(record["pid"].get<int>(), kind.signal);
    job.join();
    ASSERT_TRUE(record.is_object());
    EXPECT_EQ(of_plain_mpirun(code, kind.code), kind.code) << read(log);
    EXPECT_TRUE(says(read(log), rank_name(2)) && says(read(log), kind.says)) << read(log);
    wait_until([&] { return processes_of(out).empty(); }, std::chrono::minutes(1));
    EXPECT_TRUE(processes_of(out).empty());
  }
}

// SIGTERM to one rank, to its guard or to the launcher: all ranks stop at the same step with one
// checkpoint.
TEST(Failures, PreemptionReachesAllRanks) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  Job job("preempted");
  for (int i = 0; i < 4; ++i) {
    job.start(3, " --epochs 10000");
    const std::size_t before = lines_of(job.out(), "step").size();
    job.wait_for_steps(before + 4);
    if (i == 3) {
      job.process().signal(SIGTERM);
    } else {
      const int pid = job.pid_of(i);
      ::kill(i == 2 ? guard_of(pid) : pid, i == 1 ? SIGUSR1 : SIGTERM);
    }
    EXPECT_EQ(job.end(), 75) << job.log();
    const json listed = json::parse(run("ckpt ls --json " + job.out().string()).out);
    ASSERT_FALSE(listed.empty());
    std::set<std::int64_t> saved;
    for (const json& c : listed) saved.insert(c["step"].get<std::int64_t>());
    EXPECT_TRUE(saved.contains(static_cast<std::int64_t>(lines_of(job.out(), "step").size())));
  }
  const auto all = lines_of(job.out(), "step");
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]["step"], i + 1);
}

// The launcher asks guards alone: a rank that heard of one request from both might take the later
// one for a second.
TEST(Failures, OneRequestReachesARankOnce) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  Job job("once");
  job.start(2, " --epochs 10000");
  job.wait_for_steps(3);
  const int guards[] = {guard_of(job.pid_of(0)), guard_of(job.pid_of(1))};
  for (const int guard : guards) ::kill(guard, SIGSTOP);
  job.process().signal(SIGTERM);
  std::this_thread::sleep_for(milliseconds(1000));  // the launcher looks five times a second
  const std::size_t before = lines_of(job.out(), "step").size();
  job.wait_for_steps(before + 2);
  EXPECT_GE(lines_of(job.out(), "step").size(), before + 2) << "who asked the ranks?";
  for (const int guard : guards) ::kill(guard, SIGCONT);
  EXPECT_EQ(job.end(), 75) << job.log();
}

// As soon as there is an mpirun, whether it has started any rank or not.
TEST(Failures, ARequestBeforeAnythingBeganCounts) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  for (const int after_ms : {0, 30, 60, 100}) {
    Job job("at_once_" + std::to_string(after_ms));
    job.start(2, " --epochs 10000");
    wait_until([&] { return processes_of(job.out()).size() >= 2; });
    std::this_thread::sleep_for(milliseconds(after_ms));
    job.process().signal(SIGTERM);
    EXPECT_EQ(job.end(), 75) << after_ms << " ms\n" << job.log();
    EXPECT_FALSE(says(job.log(), "error:")) << job.log();
  }
}

// A launcher that is killed takes its job along, and the next one removes what it left.
TEST(Failures, NothingOutlivesTheLauncher) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  Job job("orphans");
  job.start(2, " --epochs 10000");
  job.wait_for_steps(3);
  job.process().signal(SIGKILL);
  EXPECT_EQ(job.process().wait(), 128 + SIGKILL);
  wait_until([&] { return processes_of(job.out()).empty(); }, std::chrono::minutes(1));
  EXPECT_TRUE(processes_of(job.out()).empty());
  job.start(2, short_length + " --fresh");
  EXPECT_EQ(job.end(), 0) << job.log();
}

}  // namespace
}  // namespace tessera::test::failures_test
