// Which tasks of a parallel_for each thread runs. A thread first takes those of its own share,
// tasks that follow each other, and then half of what is left of another's. So the same thread
// works on the same part of a tensor in step after step, and finds it in its core's cache, wherever
// cores are equally fast.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/check.h"

namespace tessera {

class TaskShares {
 public:
  static constexpr std::int64_t most = (std::int64_t{1} << 31) - 1;

  explicit TaskShares(int threads) : shares_(static_cast<std::size_t>(threads)) {}

  // Before a round, while no thread takes tasks; every thread takes until there are none.
  void begin(std::int64_t tasks) {
    CHECK(tasks <= most, "parallel_for: too many tasks");
    if (stopped_.exchange(false, std::memory_order_relaxed))
      for (Share& share : shares_) share.word.store(word({0, 0}), std::memory_order_relaxed);
    tasks_ = tasks;
    round_ = 1 - round_;
  }
  std::optional<std::int64_t> take(int thread) {
    if (stopped_.load(std::memory_order_relaxed)) return std::nullopt;
    std::atomic<Word>& own = at(thread);
    for (Word seen = own.load(std::memory_order_relaxed);;) {
      const Run run = run_of(seen, thread);
      const bool left = run.begin < run.end;
      if (own.compare_exchange_weak(seen, word({run.begin + (left ? 1 : 0), run.end}),
                                    std::memory_order_relaxed)) {
        if (left) return run.begin;
        return steal(thread);
      }
    }
  }
  // No task begins any more.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }

 private:
  // Tasks [begin, end) that are left. A word has them and, in its lowest bit, the round that they
  // belong to: one of the round before stands for a whole share that nobody has taken from. No word
  // is older, since every thread writes its own in every round.
  struct Run {
    std::int64_t begin, end;
  };
  using Word = std::uint64_t;
  struct alignas(64) Share {
    std::atomic<Word> word{0};
  };

  std::atomic<Word>& at(int thread) { return shares_[static_cast<std::size_t>(thread)].word; }
  Word word(Run run) const {
    return static_cast<Word>(run.begin) << 32 | static_cast<Word>(run.end) << 1 | round_;
  }
  Run run_of(Word word, int thread) const {
    const auto threads = static_cast<std::int64_t>(shares_.size());
    if ((word & 1) != round_) return {tasks_ * thread / threads, tasks_ * (thread + 1) / threads};
    return {static_cast<std::int64_t>(word >> 32), static_cast<std::int64_t>(word >> 1 & most)};
  }
  std::optional<std::int64_t> steal(int thread) {
    const int threads = static_cast<int>(shares_.size());
    for (int i = 1; i < threads; ++i) {
      const int other = (thread + i) % threads;
      for (Word seen = at(other).load(std::memory_order_relaxed);;) {
        const Run run = run_of(seen, other);
        if (run.begin == run.end) break;
        const std::int64_t from = run.begin + (run.end - run.begin) / 2;
        if (!at(other).compare_exchange_weak(seen, word({run.begin, from}),
                                             std::memory_order_relaxed))
          continue;
        at(thread).store(word({from + 1, run.end}), std::memory_order_relaxed);
        return from;
      }
    }
    return std::nullopt;
  }

  std::vector<Share> shares_;
  std::int64_t tasks_ = 0;
  Word round_ = 0;
  std::atomic<bool> stopped_{false};
};

}  // namespace tessera
