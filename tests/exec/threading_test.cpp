// Threads take a kernel's tasks as run.threading says: each once, in runs of whole rows or heads;
// and which ops they share out at all.
#include <gtest/gtest.h>

#include <mutex>

#include "exec/harness.h"

namespace tessera::exec::threading_test {
namespace {

constexpr Threading all[] = {Threading::automatic, Threading::heads, Threading::rows,
                             Threading::products};

// The tasks that each run took, in order.
std::vector<std::vector<std::int64_t>> taken(Threading threading, std::int64_t tasks,
                                             std::int64_t row, std::int64_t head) {
  ThreadPool pool(3);
  const ir::Attrs attrs;
  Call call{ir::Op::add, attrs, {}, {}, pool, {}};
  call.threading = threading;
  std::mutex mutex;
  std::vector<std::vector<std::int64_t>> by_thread(3);
  call.share_out(tasks, row, head, [&](std::int64_t task, int thread) {
    std::lock_guard lock(mutex);
    by_thread[static_cast<std::size_t>(thread)].push_back(task);
  });
  return by_thread;
}

TEST(Threading, NamesAreThoseOfTheKey) {
  EXPECT_EQ(threading_named("auto"), Threading::automatic);
  EXPECT_EQ(threading_named("heads"), Threading::heads);
  EXPECT_EQ(threading_named("rows"), Threading::rows);
  EXPECT_EQ(threading_named("products"), Threading::products);
  EXPECT_THROW(threading_named("columns"), Error);
}

TEST(Threading, EveryTaskOnceAndRunsWhole) {
  for (const Threading threading : all)
    for (const std::int64_t tasks : {0, 1, 7, 24, 25}) {
      const std::int64_t run = threading == Threading::rows    ? 4
                               : threading == Threading::heads ? 6
                                                               : 1;
      std::vector<int> times(static_cast<std::size_t>(tasks));
      for (const std::vector<std::int64_t>& list : taken(threading, tasks, 4, 6))
        for (std::size_t i = 0; i < list.size(); ++i) {
          ++times[static_cast<std::size_t>(list[i])];
          EXPECT_TRUE(list[i] % run == 0 || (i > 0 && list[i - 1] == list[i] - 1)) << list[i];
        }
      for (const int n : times) EXPECT_EQ(n, 1);
    }
}

// A rank may have no head, and a product no column.
TEST(Threading, RowsOfNothing) {
  for (const Threading threading : all)
    for (const std::vector<std::int64_t>& list : taken(threading, 0, 0, 0))
      EXPECT_TRUE(list.empty());
}

TEST(Threading, WhatIsSharedOut) {
  using ir::Op;
  const ir::Type x{ir::DType::f32, {2, 3, 4}, {}}, w{ir::DType::f32, {4, 5}, {}},
      heads{ir::DType::f32, {2, 3, 4, 5}, {}};
  const ir::Attrs linear = ir::Contract{.sig = "bte,ef->btf", .act = {}, .out = {}},
                  scores = ir::Contract{.sig = "bthd,bshd->bhts", .act = {}, .out = {}};
  const auto shared = [&](Threading threading, Op op, const ir::Attrs& attrs = {},
                          std::vector<ir::Type> in = {}) {
    return cpu::shared_out(threading, op, attrs, in);
  };
  const auto expect = [&](Threading threading, bool one, bool each, bool attention, bool softmax,
                          bool conv, bool norm) {
    SCOPED_TRACE(static_cast<int>(threading));
    EXPECT_EQ(shared(threading, Op::contract, linear, {x, w}), one);
    EXPECT_EQ(shared(threading, Op::contract, scores, {heads, heads}), each);
    EXPECT_EQ(shared(threading, Op::attention), attention);
    EXPECT_EQ(shared(threading, Op::softmax), softmax);
    EXPECT_EQ(shared(threading, Op::conv), conv);
    EXPECT_EQ(shared(threading, Op::layer_norm), norm);
  };
  expect(Threading::automatic, true, true, true, true, true, true);
  expect(Threading::rows, true, true, true, true, true, true);
  expect(Threading::heads, false, true, true, true, false, false);
  expect(Threading::products, true, true, false, false, true, false);
}

}  // namespace
}  // namespace tessera::exec::threading_test
