// One of several threads compiles a program, and what it is kept by says all of it.
#include "compile/program_memo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "ir/builder.h"
#include "models/config.h"

namespace tessera::test::program_memo_test {
namespace {

run::GlobalProgram of_size(int eqns) {
  ir::Builder b;
  ir::Var x = b.input(ir::Input::batch, "x", {ir::DType::f32, {2}, {}});
  for (int i = 0; i < eqns; ++i) x = b.scale(x, 2);
  return {b.take(), {}};
}

run::ProgramKey key_of(int seed) {
  run::ProgramKey key;
  key.micro = {8};
  key.config.run.seed = seed;
  return key;
}

config::Config two_ranks() {
  config::Config c;
  c.batch = {8, 4, 1};
  c.model.depth = 1;
  c.parallel.dp = 2;
  return c;
}

void at_once(int threads, const std::function<void()>& work) {
  std::vector<std::jthread> all;
  for (int i = 0; i < threads; ++i) all.emplace_back(work);
}

TEST(ProgramMemo, IsMadeOnceForAllWhoAsk) {
  run::ProgramMemo memo(100);
  std::atomic<int> made = 0, got = 0;
  at_once(4, [&] {
    const run::ProgramMemo::Made mine = memo.get(key_of(1), [&] {
      ++made;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return of_size(3);
    });
    got += static_cast<int>(mine->program.eqns.size());
  });
  EXPECT_EQ(made, 1);
  EXPECT_EQ(got, 4 * 3);
}

TEST(ProgramMemo, AFailureIsEverybodysOwnAndIsNotKept) {
  run::ProgramMemo memo(100);
  std::atomic<int> failed = 0;
  at_once(3, [&] {
    try {
      memo.get(key_of(1), []() -> run::GlobalProgram {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        throw std::runtime_error("no");
      });
    } catch (const std::runtime_error&) {
      ++failed;
    }
  });
  EXPECT_EQ(failed, 3);
  EXPECT_EQ(memo.get(key_of(1), [] { return of_size(5); })->program.eqns.size(), 5u);
}

TEST(ProgramMemo, KeepsWhatWasAskedForLastAndNoMore) {
  run::ProgramMemo memo(10);
  int made = 0;
  const auto ask = [&](int seed) {
    memo.get(key_of(seed), [&] {
      ++made;
      return of_size(4);
    });
  };
  ask(1);
  ask(2);
  ask(1);
  ask(3);  // 2 was asked for least lately
  EXPECT_EQ(made, 3);
  EXPECT_EQ(memo.kept_eqns(), 8u);
  ask(1);
  ask(3);
  EXPECT_EQ(made, 3);
  ask(2);
  EXPECT_EQ(made, 4);
  memo.get(key_of(4), [] { return of_size(11); });  // more than there is room for
  EXPECT_LE(memo.kept_eqns(), 10u);
}

// Everything that two questions may differ in.
TEST(ProgramMemo, AnotherQuestionIsAnotherProgram) {
  const config::Config c = two_ranks();
  const auto program = [](const config::Config& config, run::Goal goal, std::int64_t samples) {
    return run::compile(config, goal, {samples}, plan::Target{}).program;
  };
  const ir::Program train = program(c, run::Goal::train, 8);
  EXPECT_EQ(train, program(c, run::Goal::train, 8));
  EXPECT_NE(train, program(c, run::Goal::train, 6));
  EXPECT_NE(train, program(c, run::Goal::evaluate, 8));
  config::Config other = c;
  other.optim.weight_decay = 0.25;
  EXPECT_NE(train, program(other, run::Goal::train, 8));
  other = c;
  other.parallel.zero = 3;
  EXPECT_NE(train, program(other, run::Goal::train, 8));
}

// An executor may cut the windows of a Swin in its attention; the ranks of a job whose devices
// differ run one program all the same.
TEST(ProgramMemo, DevicesThatDifferRunOneProgram) {
  config::Config c = two_ranks();
  c.model = models::preset("swin_micro");
  plan::Target cuts;
  cuts.device = "cuts";
  cuts.cuts_windows = [](const ir::Attention&, const ir::Type&) { return true; };
  const auto windows = [&](const plan::Target& target) {
    const ir::Program p = run::compile(c, run::Goal::evaluate, {8}, target).program;
    return std::count_if(p.eqns.begin(), p.eqns.end(),
                         [](const ir::Eqn& e) { return e.op == ir::Op::window; });
  };
  EXPECT_GT(windows(plan::Target{}), 0);
  EXPECT_EQ(windows(cuts), 0);
  c.run.device = "cuda,cpu";
  EXPECT_EQ(windows(cuts), windows(plan::Target{}));
  EXPECT_GT(windows(cuts), 0);
}

// Threads of one process may have cards of one name that take different windows: neither gets the
// program of the other, whoever asks first.
TEST(ProgramMemo, CardsOfOneNameThatDifferHaveTheirOwnPrograms) {
  config::Config c = two_ranks();
  c.model = models::preset("swin_micro");
  plan::Target cuts, refuses, never;
  cuts.device = refuses.device = never.device = "card";
  cuts.cuts_windows = [](const ir::Attention&, const ir::Type&) { return true; };
  refuses.cuts_windows = [](const ir::Attention&, const ir::Type&) { return false; };
  const auto windows = [&](const plan::Target& target) {
    const ir::Program p = run::compile(c, run::Goal::evaluate, {8}, target).program;
    return std::count_if(p.eqns.begin(), p.eqns.end(),
                         [](const ir::Eqn& e) { return e.op == ir::Op::window; });
  };
  for (int round = 0; round < 2; ++round) {
    EXPECT_GT(windows(never), 0);
    EXPECT_EQ(windows(cuts), 0);
    EXPECT_EQ(windows(refuses), windows(never));
  }
  c.run.seed = 2;  // another key: now the one that refuses asks first
  EXPECT_GT(windows(refuses), 0);
  EXPECT_EQ(windows(cuts), 0);
}

// A program that was kept is the one that a compiler without a memory makes.
TEST(ProgramMemo, IsWhatCompilingAnewGives) {
  const config::Config c = two_ranks();
  transforms::RunOptions alone;
  alone.before = [](const transforms::Pass&, const ir::Program&) {};  // is shown every pass
  for (const run::Goal goal : {run::Goal::train, run::Goal::evaluate}) {
    const run::Compiled fresh = run::compile(c, goal, {8}, plan::Target{}, alone);
    for (int rank = 0; rank < 2; ++rank) {
      const run::Compiled kept =
          run::compile(c, goal, {8}, plan::Target{}, {}, run::Weights::live, rank);
      EXPECT_EQ(kept.program, fresh.program);
      EXPECT_EQ(kept.passes.size(), fresh.passes.size());
      EXPECT_EQ(kept.plan.rank, rank);
    }
  }
}

}  // namespace
}  // namespace tessera::test::program_memo_test
