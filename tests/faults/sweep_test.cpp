// Every call that a training makes below its folder fails once, and from then on for ever; fresh
// and resumed, of one rank, of two threads and of two processes. A few chosen cases in the fast
// suite, all of them in Long.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "faults/sweep.h"

namespace tessera::test::faults::sweep_test {
namespace {

constexpr int errors[] = {EIO, ESTALE, ENOSPC, EACCES};

// By hand: TESSERA_FAULT_CALLS="fsync,rename" sweeps only these, TESSERA_FAULT_N=7 only the seventh
// of each.
bool wanted(std::size_t call, std::int64_t n) {
  const char *calls = std::getenv("TESSERA_FAULT_CALLS"), *number = std::getenv("TESSERA_FAULT_N");
  if (number && std::atoll(number) != n) return false;
  return !calls ||
         ("," + std::string(calls) + ",").find("," + std::string(call_names[call]) + ",") !=
             std::string::npos;
}

// How many writes are passed over from one that fails to the next: TESSERA_FAULT_STRIDE=1 lets none
// be left out where a sweep by itself takes every 3rd or 11th.
std::int64_t told_stride(std::int64_t otherwise) {
  const char* told = std::getenv("TESSERA_FAULT_STRIDE");
  return told ? std::max<std::int64_t>(1, std::atoll(told)) : otherwise;
}

// Every n of every call, as many as were counted in this slot; the error changes with
// n. Of writes, which are mostly those of one tensor after the other, every `stride`-th.
std::vector<Fault> every_call(const Ended& counted, std::size_t slot, int rank,
                              std::int64_t stride) {
  std::vector<Fault> out;
  stride = told_stride(stride);
  for (std::size_t c = 0; c < call_count; ++c)
    for (std::int64_t n = 1; n <= counted.seen[slot][c]; ++n)
      for (const bool for_ever : {false, true}) {
        if ((static_cast<Call>(c) == Call::write && n % stride != 0) || !wanted(c, n)) continue;
        const std::int64_t value = errors[(n + (for_ever ? 1 : 0)) % std::ssize(errors)];
        out.push_back({.call = static_cast<Call>(c),
                       .n = n,
                       .for_ever = for_ever,
                       .value = value,
                       .rank = rank});
      }
  return out;
}

void expect_sound(const std::string& what, const Tally& tally) {
  tally.print(what);
  EXPECT_TRUE(is_sharded() || tally.cases > 0);
  for (const std::string& finding : tally.findings) ADD_FAILURE() << finding;
}

void sweep(const std::string& name, const Ground& ground, const std::vector<int>& ranks,
           std::int64_t stride) {
  for (const Start start : {Start::fresh, Start::resumed, Start::finished}) {
    const Ended counted = count_calls(ground, start, scratch_folder() / "count");
    ASSERT_EQ(counted.code, 0) << counted.said;
    Tally all;
    for (const int rank : ranks)
      all.add(try_all(
          ground, start,
          every_call(counted, rank < 0 ? 0 : static_cast<std::size_t>(rank) + 1, rank, stride)));
    expect_sound(name + (start == Start::fresh     ? ", fresh"
                         : start == Start::resumed ? ", resumed"
                                                   : ", finished"),
                 all);
  }
}

TEST(Faults, EveryWriteFailsWhereThatIsAsked) {
  Ended counted;
  counted.seen[1][static_cast<std::size_t>(Call::write)] = 22;
  const char* const before = std::getenv("TESSERA_FAULT_STRIDE");
  const std::string kept = before ? before : "";
  ::unsetenv("TESSERA_FAULT_STRIDE");
  EXPECT_EQ(every_call(counted, 1, 0, 11).size(), 4u) << "the 11th and the 22nd, once and for ever";
  ::setenv("TESSERA_FAULT_STRIDE", "1", 1);
  EXPECT_EQ(every_call(counted, 1, 0, 11).size(), 44u);
  before ? ::setenv("TESSERA_FAULT_STRIDE", kept.c_str(), 1) : ::unsetenv("TESSERA_FAULT_STRIDE");
}

TEST(Long, EveryCallOfOneRank) { sweep("one rank", one_rank(), {-1}, 1); }
TEST(Long, EveryCallOfTwoThreads) {
  sweep("two threads", Ground("threads", "--np 2 --comm local"), {-1}, 3);
}
TEST(Long, EveryCallOfTwoProcesses) {
  sweep("two processes", Ground("processes", "--np 2"), {0, 1}, 11);
}

// The process dies after every call that changes the folder.
TEST(Long, DeathAfterEveryCall) {
  for (const Start start : {Start::fresh, Start::resumed}) {
    const Ended counted = count_calls(one_rank(), start, scratch_folder() / "count");
    std::vector<Fault> deaths;
    for (Fault fault : every_call(counted, 0, -1, 5)) {
      const bool changes = fault.call != Call::read && fault.call != Call::readdir &&
                           fault.call != Call::opendir && fault.call != Call::stat;
      if (!changes || fault.for_ever) continue;
      fault.action = "die";
      deaths.push_back(fault);
    }
    expect_sound(start == Start::fresh ? "deaths, fresh" : "deaths, resumed",
                 try_all(one_rank(), start, deaths));
  }
}

// Cases that have found defects, by the file they meet: whatever comes before in the run may
// change.
TEST(Faults, ChosenCallsOfAResumedRun) {
  const std::vector<Fault> chosen = {
      {.call = Call::opendir,
       .n = 1,
       .for_ever = true,
       .value = ESTALE,
       .only = "/ckpt"},  // a folder that cannot be listed
      {.call = Call::readdir, .n = 2, .value = EIO, .only = "/ckpt"},
      {.call = Call::open,
       .n = 1,
       .value = EACCES,
       .only = "/metrics.jsonl"},  // metrics that cannot be opened, or read
      {.call = Call::read, .n = 1, .value = ESTALE, .only = "/metrics.jsonl"},
      {.call = Call::write, .n = 1, .value = ENOSPC, .only = "/metrics.jsonl"},
      {.call = Call::fsync, .n = 1, .value = EIO, .only = "/metrics.jsonl"},
      {.call = Call::fsync, .n = 2, .value = EIO, .only = "/.part-step-6"},  // of the folder itself
      {.call = Call::rename, .n = 1, .value = EIO, .only = "/ckpt/step-6"},
      {.call = Call::write, .n = 3, .value = ENOSPC, .only = "/.part-step-6"},
      {.call = Call::unlink, .n = 1, .for_ever = true, .value = EACCES, .only = "/ckpt"},
  };
  const Tally tally = try_all(one_rank(), Start::resumed, chosen);
  expect_sound("chosen", tally);
  EXPECT_EQ(tally.unreached, 0);
}
TEST(Faults, ChosenCallsOfTwoThreads) {
  const Ground threads("chosen", "--np 2 --comm local");
  const std::vector<Fault> chosen = {
      {.call = Call::opendir, .n = 1, .for_ever = true, .value = EACCES, .only = "/ckpt"},
      {.call = Call::fsync, .n = 1, .value = EIO, .only = "/ckpt/.part-step-6"},
      {.call = Call::write, .n = 2, .value = ENOSPC, .only = "/ckpt/.part-step-6"},
      // The second rank can write neither its part nor that it could not: the first waits for it.
      {.call = Call::rename,
       .n = 1,
       .for_ever = true,
       .value = ENOSPC,
       .only = "/ckpt/.part-step-6/rank-1"},
      {.call = Call::read, .n = 1, .value = EIO, .only = "/ckpt/.part-step-6/rank-1.json"},
  };
  const Tally tally = try_all(threads, Start::resumed, chosen);
  expect_sound("chosen", tally);
  EXPECT_EQ(tally.unreached, 0);
  EXPECT_FALSE(tally.codes.contains(2)) << "a disk that fails is no mistake of the command line";
  // No call fails: the second rank is only late when its part is there and the first goes on.
  const Tally late = try_fault(
      threads, Start::resumed,
      {.call = Call::close, .n = 1, .action = "slow", .value = 300, .only = "/rank-1.json$"},
      scratch_folder() / "late");
  expect_sound("late", late);
  EXPECT_EQ(late.passed_by, 1);
}

}  // namespace
}  // namespace tessera::test::faults::sweep_test
