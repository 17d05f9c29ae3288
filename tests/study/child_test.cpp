// Processes of a study: their time is limited, everything they start ends with them, and why they
// failed is said in words.
#include "study/child.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "base/process.h"
#include "files/scratch.h"
#include "study/throttle.h"
#include "wait_until.h"

namespace tessera::study::child_test {
namespace {

using test::Scratch;

ChildOptions shell(const Scratch& scratch, const std::string& script) {
  ChildOptions out;
  out.command = {"sh", "-c", script};
  out.folder = scratch.folder();
  out.time_limit = 60;
  out.grace = 5;
  return out;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool alive(const std::string& pid) {
  const char state = pid.empty() ? 0 : stat_of(std::stoi(pid)).state;
  return state != 0 && state != 'Z';
}

TEST(Child, OutputCodeAndStart) {
  const Scratch scratch;
  ChildOptions options = shell(scratch, "echo out; echo err >&2; exit 3");
  int pid = 0;
  options.on_start = [&](int p, std::uint64_t started) {
    pid = p;
    EXPECT_EQ(stat_of(p).started, started);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(text_of(scratch / "stdout.txt"), "") << "it began before it was written down";
  };
  const StopRequests requests;
  const ChildResult result = run_child(options, requests);
  EXPECT_EQ(result.code, 3);
  EXPECT_FALSE(result.timed_out);
  EXPECT_GT(pid, 1);
  EXPECT_EQ(text_of(scratch / "stdout.txt"), "out\n");
  EXPECT_EQ(text_of(scratch / "stderr.txt"), "err\n");
}

TEST(Child, TheWholeSessionEnds) {
  const Scratch scratch;
  // A grandchild in a group of its own that hears no SIGTERM, as under a launcher.
  const std::string stubborn =
      "trap '' TERM; set -m; sh -c \"trap '' TERM; while :; do sleep 1; done\" & echo $! > " +
      (scratch / "pid").string() + "; ";
  ChildOptions options = shell(scratch, stubborn + "while :; do sleep 1; done");
  options.time_limit = 2;
  options.grace = 0.3;
  const StopRequests requests;
  ChildResult result = run_child(options, requests);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_FALSE(text_of(scratch / "pid").empty());
  EXPECT_FALSE(alive(text_of(scratch / "pid")));
  EXPECT_NE(failure_reason(result, 2, scratch.folder()).find("time limit of 2 s"),
            std::string::npos);
  // Left behind by one that ended well.
  result = run_child(shell(scratch, stubborn + "exit 0"), requests);
  EXPECT_EQ(result.code, 0);
  EXPECT_FALSE(alive(text_of(scratch / "pid")));
}

TEST(Child, ItEndsWithItsParent) {
  const Scratch scratch;
  const pid_t parent = ::fork();
  if (parent == 0) {
    const StopRequests requests;
    ChildOptions options =
        shell(scratch, "echo $$ > " + (scratch / "pid").string() + "; exec sleep 600");
    options.on_start = [&](int pid, std::uint64_t started) {
      std::ofstream(scratch / "started") << pid << " " << started;
    };
    run_child(options, requests);
    ::_exit(0);
  }
  test::wait_until([&] { return !text_of(scratch / "pid").empty(); });
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  const std::string pid = text_of(scratch / "pid");
  test::wait_until([&] { return !alive(pid); });
  EXPECT_FALSE(alive(pid));
}

TEST(Child, WhatIsLeftOverIsEndedByItsNumberAndStart) {
  const Scratch scratch;
  const pid_t leader = ::fork();
  if (leader == 0) {
    ::setsid();
    ::setenv(study_variable, mark_of(scratch.folder()).c_str(), 1);
    ::execlp("sh", "sh", "-c", "trap '' TERM; while :; do sleep 1; done", nullptr);
    ::_exit(127);
  }
  while (variable_of(leader, study_variable).empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const std::uint64_t started = stat_of(leader).started;
  end_session(leader, started + 1, scratch.folder(), 0.2);  // another process with the same number
  EXPECT_TRUE(alive(std::to_string(leader)));
  end_session(leader, started, scratch / "another", 0.2);  // of another study
  EXPECT_TRUE(alive(std::to_string(leader)));
  end_session(leader, started, scratch.folder(), 0.2);
  int status = 0;
  EXPECT_EQ(::waitpid(leader, &status, 0), leader);
  EXPECT_TRUE(WIFSIGNALED(status));
}

// A database that others can write names a process of this user that no study started: its number,
// start and machine are right.
TEST(Child, WhatNoStudyStartedStays) {
  const Scratch scratch;
  int go[2] = {-1, -1};
  ASSERT_EQ(::pipe(go), 0);
  const pid_t leader = ::fork();
  if (leader ==
      0) {  // leads a session with another process in it, and ends: the session keeps its number
    ::setsid();
    if (::fork() != 0) ::_exit(0);
    ::close(go[1]);
    char byte = 0;
    ::_exit(static_cast<int>(::read(go[0], &byte, 1)));  // until the test is over
  }
  const std::uint64_t started = stat_of(leader).started;
  ::waitpid(leader, nullptr, 0);
  const auto members = [&] {
    int count = 0;
    for (const int pid : all_processes())
      count += stat_of(pid).session == leader && stat_of(pid).state != 'Z';
    return count;
  };
  EXPECT_EQ(members(), 1);
  end_session(leader, started, scratch.folder(), 0.1);
  EXPECT_EQ(members(), 1) << "a process that is nobody's run was ended";
  ::close(go[0]);
  ::close(go[1]);
}

TEST(Child, EveryProcessOfARunCarriesItsMark) {
  const Scratch scratch;
  ChildOptions options = shell(scratch, "sh -c 'echo $TESSERA_STUDY'");
  options.study = mark_of(scratch.folder());
  const StopRequests requests;
  EXPECT_EQ(run_child(options, requests).code, 0);
  EXPECT_EQ(text_of(scratch / "stdout.txt"), mark_of(scratch.folder()) + "\n");
}

TEST(Child, ARequestToStopEndsIt) {
  const Scratch scratch;
  const StopRequests requests;
  ChildOptions options =
      shell(scratch, "trap 'exit 75' TERM; echo ready; while :; do sleep 0.05; done");
  const pid_t self = ::getpid();
  std::thread asker([&] {
    test::wait_until([&] { return !text_of(scratch / "stdout.txt").empty(); });
    ::kill(self, SIGINT);
  });
  const ChildResult result = run_child(options, requests);
  asker.join();
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.code, 75);
}

TEST(Child, AnExceptionLeavesNothingRunning) {
  const Scratch scratch;
  const StopRequests requests;
  ChildOptions options = shell(scratch, "exec sleep 600");
  int child = 0;
  options.on_start = [&](int pid, std::uint64_t) { child = pid; };
  options.on_tick = [](double) { throw std::runtime_error("no terminal"); };
  EXPECT_THROW(run_child(options, requests), std::runtime_error);
  EXPECT_EQ(stat_of(child).state, 0);
}

TEST(Child, TheEnvironmentOfALauncherIsItsOwn) {
  const Scratch scratch;
  const StopRequests requests;
  const char* name = "OMPI_MCA_mpi_yield_when_idle";
  const std::string before = std::getenv(name) ? std::getenv(name) : "";
  ::unsetenv(name);
  const auto told = [&](bool launcher, bool crowded) {
    ChildOptions options = shell(scratch, "env");
    options.launcher = launcher;
    options.crowded = crowded;
    EXPECT_EQ(run_child(options, requests).code, 0);
    return text_of(scratch / "stdout.txt");
  };
  EXPECT_NE(told(true, true).find(std::string(name) + "=1\n"), std::string::npos);
  EXPECT_EQ(std::getenv(name), nullptr);
  EXPECT_EQ(told(true, false).find(name), std::string::npos);
  EXPECT_NE(told(true, false).find("PRTE_MCA_rmaps_default_mapping_policy="), std::string::npos);
  EXPECT_EQ(told(false, true).find(name), std::string::npos);
  // Why mpirun started nothing is said by nobody else.
  const char* quiet = "OMPI_MCA_orte_execute_quiet";
  ::unsetenv(quiet);
  EXPECT_EQ(told(true, false).find(quiet), std::string::npos);
  if (!before.empty()) ::setenv(name, before.c_str(), 1);
}

TEST(Child, SignalsThatOthersSetOrSendDoNoHarm) {
  const Scratch scratch;
  const auto ignored = std::signal(SIGCHLD, SIG_IGN);
  {
    const StopRequests requests;
    EXPECT_EQ(run_child(shell(scratch, "exit 3"), requests).code, 3);
    // Killed before it is told to begin.
    ChildOptions early = shell(scratch, "sleep 600");
    early.on_start = [](int pid, std::uint64_t) {
      ::kill(pid, SIGKILL);
      while (stat_of(pid).state != 'Z') std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    EXPECT_EQ(run_child(early, requests).code, 128 + SIGKILL);
    ::raise(SIGTERM);  // after the last run: nobody asks for it
  }
  EXPECT_EQ(std::signal(SIGCHLD, ignored), SIG_IGN);
}

// In a job of Slurm mpirun and what it starts have SLURM_PROCID=0, all of them.
TEST(Child, RanksAreFoundByTheNamesOfTheirLauncher) {
  const Scratch scratch;
  const StopRequests requests;
  const std::string guard = "sh -c 'sh -c \"echo \\$\\$ > FILE; exec sleep 600\" & wait' & ";
  std::string script = "export SLURM_PROCID=0; sh -c \"sleep 600 & wait\" & ";
  for (const char* rank : {"0", "1"}) {
    std::string one = guard;
    one.replace(one.find("FILE"), 4, (scratch / rank).string());
    script += std::string("OMPI_COMM_WORLD_RANK=") + rank + " " + one;
  }
  ChildOptions options = shell(scratch, script + "wait");
  int session = 0;
  std::string found, expected;
  options.on_start = [&](int pid, std::uint64_t) { session = pid; };
  options.on_tick = [&](double) {
    if (text_of(scratch / "0").empty() || text_of(scratch / "1").empty() || !found.empty()) return;
    for (const int rank : {0, 1}) {
      found += std::to_string(process_of_rank(session, rank)) + "\n";
      expected += text_of(scratch / std::to_string(rank));
    }
    ::kill(session, SIGTERM);
  };
  run_child(options, requests);
  EXPECT_FALSE(found.empty());
  EXPECT_EQ(found, expected);
}

TEST(Child, ReasonsInWords) {
  const Scratch scratch;
  const StopRequests requests;
  const auto reason = [&](const std::string& script) {
    return failure_reason(run_child(shell(scratch, script), requests), 60, scratch.folder());
  };
  EXPECT_EQ(
      reason(
          "echo 'note: x' >&2; echo 'error: no such data' >&2; echo 'error: second' >&2; exit 3"),
      "the data set or an image is bad (exit code 3): no such data");
  EXPECT_EQ(reason("exit 44"),
            "exit code 44; it said nothing in " + (scratch / "stderr.txt").string());
  EXPECT_EQ(reason("exit 200").substr(0, 14), "exit code 200;");  // no signal has that number
  // A launcher's words: its errors are written otherwise, and its 1 is no difference.
  EXPECT_EQ(reason("echo 'mpirun: Error: unknown option' >&2; exit 1"),
            "exit code 1: unknown option");
  EXPECT_EQ(reason("printf 'first\\nlast words\\n-----\\n\\n' >&2; exit 1"),
            "exit code 1: last words");
  const std::string dashes(74, '-'),
      box = dashes + "\\nYour job has requested more processes than\\nfit:\\n\\n  PPR: 1:node\\n" +
            dashes + "\\n";
  EXPECT_EQ(
      reason("printf -- '" + box + dashes + "\\nAnother box.\\n" + dashes + "\\n' >&2; exit 1"),
      "exit code 1: Your job has requested more processes than fit: PPR: 1:node");
  EXPECT_EQ(reason("printf -- 'a rank: no such file\\n" + box + "' >&2; exit 1"),
            "exit code 1: a rank: no such file");
  EXPECT_NE(reason("kill -9 $$").find("ended by signal 9"), std::string::npos);
  const std::string hostile = reason("printf 'error: \\033[31m\\001red\\377\\n' >&2; exit 2");
  EXPECT_NE(hostile.find("\\x1b[31m\\x01red\\xff"), std::string::npos) << hostile;
  ChildOptions missing = shell(scratch, "");
  missing.command = {(scratch / "nothing").string()};
  EXPECT_NE(failure_reason(run_child(missing, requests), 60, scratch.folder())
                .find("could not be started"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::study::child_test
