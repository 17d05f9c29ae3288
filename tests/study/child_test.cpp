// Processes of a study: their time is limited, everything they start ends with them, and why they failed is said in words.
#include "study/child.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/printable.h"
#include "base/process.h"
#include "files/scratch.h"

namespace tessera::study::child_test {
namespace {

using test::Scratch;

ChildOptions shell(const Scratch& scratch, const std::string& script) {
  ChildOptions out;
  out.command = {"sh", "-c", script};
  out.folder = scratch.folder();
  out.time_limit = 60, out.grace = 5;
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
      "trap '' TERM; set -m; sh -c \"trap '' TERM; while :; do sleep 1; done\" & echo $! > " + (scratch / "pid").string() + "; ";
  ChildOptions options = shell(scratch, stubborn + "while :; do sleep 1; done");
  options.time_limit = 0.5, options.grace = 0.3;
  const StopRequests requests;
  ChildResult result = run_child(options, requests);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_FALSE(text_of(scratch / "pid").empty());
  EXPECT_FALSE(alive(text_of(scratch / "pid")));
  EXPECT_NE(failure_reason(result, 0.5, scratch.folder()).find("time limit of 0.5 s"), std::string::npos);
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
    ChildOptions options = shell(scratch, "echo $$ > " + (scratch / "pid").string() + "; exec sleep 600");
    options.on_start = [&](int pid, std::uint64_t started) { std::ofstream(scratch / "started") << pid << " " << started; };
    run_child(options, requests);
    ::_exit(0);
  }
  for (int i = 0; i < 2000 && text_of(scratch / "pid").empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  const std::string pid = text_of(scratch / "pid");
  for (int i = 0; i < 2000 && alive(pid); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(alive(pid));
}

TEST(Child, WhatIsLeftOverIsEndedByItsNumberAndStart) {
  const Scratch scratch;
  const pid_t leader = ::fork();
  if (leader == 0) {
    ::setsid();
    ::execlp("sh", "sh", "-c", "trap '' TERM; while :; do sleep 1; done", nullptr);
    ::_exit(127);
  }
  while (stat_of(leader).session != leader) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const std::uint64_t started = stat_of(leader).started;
  end_session(leader, started + 1, 0.2);  // another process with the same number
  EXPECT_TRUE(alive(std::to_string(leader)));
  end_session(leader, started, 0.2);
  int status = 0;
  EXPECT_EQ(::waitpid(leader, &status, 0), leader);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST(Child, ARequestToStopEndsIt) {
  const Scratch scratch;
  const StopRequests requests;
  ChildOptions options = shell(scratch, "trap 'exit 75' TERM; while :; do sleep 0.05; done");
  const pid_t self = ::getpid();
  std::thread asker([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::kill(self, SIGINT);
  });
  const ChildResult result = run_child(options, requests);
  asker.join();
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.code, 75);
}

TEST(Child, ReasonsInWords) {
  const Scratch scratch;
  const StopRequests requests;
  const auto reason = [&](const std::string& script) {
    return failure_reason(run_child(shell(scratch, script), requests), 60, scratch.folder());
  };
  EXPECT_EQ(reason("echo 'note: x' >&2; echo 'error: no such data' >&2; echo 'error: second' >&2; exit 3"),
            "the data set or an image is bad (exit code 3): no such data");
  EXPECT_EQ(reason("exit 44"), "exit code 44");
  EXPECT_NE(reason("kill -9 $$").find("ended by signal 9"), std::string::npos);
  const std::string hostile = reason("printf 'error: \\033[31m\\001red\\377\\n' >&2; exit 2");
  EXPECT_NE(hostile.find("\\x1b[31m\\x01red\ufffd"), std::string::npos) << hostile;
  ChildOptions missing = shell(scratch, "");
  missing.command = {(scratch / "nothing").string()};
  EXPECT_NE(failure_reason(run_child(missing, requests), 60, scratch.folder()).find("could not be started"), std::string::npos);
}

TEST(Printable, NothingSteersATerminal) {
  EXPECT_EQ(printable("plain caf\u00e9 \u4e2d"), "plain caf\u00e9 \u4e2d");
  EXPECT_EQ(printable("a\x1b[2J\x07\x7f\n\t"), "a\\x1b[2J\\x07\\x7f\\n\\t");
  EXPECT_EQ(printable("\u0085\u009b"), "\\x85\\x9b");
  EXPECT_EQ(printable("\u202e\u2066\u2028x"), "\\u202e\\u2066\\u2028x");
  EXPECT_EQ(printable("\xff\xc3("), "\ufffd\ufffd(");
  EXPECT_EQ(printable(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(printable("12345", 3), "123...");
}

}  // namespace
}  // namespace tessera::study::child_test
