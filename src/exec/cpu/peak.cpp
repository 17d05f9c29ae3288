// Highway compiles this file once per instruction set and picks the best at run time.
#include "exec/cpu/peak.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <functional>
#include <vector>

#include "base/threads.h"
#include "exec/cpu/gemm/peak_loops.h"
#include "exec/cpu/simd/vector.h"  // before Highway: the instruction sets we build for

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/peak.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

// Chains of multiply-adds that depend on nothing but themselves (each starts elsewhere, or the
// compiler would merge them); returns the operations done. Twelve fit the 16 registers of AVX2,
// twenty are needed to keep four pipes busy where there are 32: the better of the two is the peak.
double twelve_chains(std::int64_t rounds, float* sink) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, 1e-3f);
  auto a0 = hn::Set(d, 0.01f), a1 = hn::Set(d, 0.02f), a2 = hn::Set(d, 0.03f),
       a3 = hn::Set(d, 0.04f), a4 = hn::Set(d, 0.05f), a5 = hn::Set(d, 0.06f),
       a6 = hn::Set(d, 0.07f), a7 = hn::Set(d, 0.08f), a8 = hn::Set(d, 0.09f),
       a9 = hn::Set(d, 0.10f), a10 = hn::Set(d, 0.11f), a11 = hn::Set(d, 0.12f);
  for (std::int64_t i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(x, y, a0);
    a1 = hn::MulAdd(x, y, a1);
    a2 = hn::MulAdd(x, y, a2);
    a3 = hn::MulAdd(x, y, a3);
    a4 = hn::MulAdd(x, y, a4);
    a5 = hn::MulAdd(x, y, a5);
    a6 = hn::MulAdd(x, y, a6);
    a7 = hn::MulAdd(x, y, a7);
    a8 = hn::MulAdd(x, y, a8);
    a9 = hn::MulAdd(x, y, a9);
    a10 = hn::MulAdd(x, y, a10);
    a11 = hn::MulAdd(x, y, a11);
  }
  *sink += hn::GetLane(hn::Add(
      hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(hn::Add(a4, a5), hn::Add(a6, a7))),
      hn::Add(hn::Add(a8, a9), hn::Add(a10, a11))));
  return 24.0 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

double twenty_chains(std::int64_t rounds, float* sink) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, 1e-3f);
  auto a0 = hn::Set(d, 0.01f), a1 = hn::Set(d, 0.02f), a2 = hn::Set(d, 0.03f),
       a3 = hn::Set(d, 0.04f), a4 = hn::Set(d, 0.05f), a5 = hn::Set(d, 0.06f),
       a6 = hn::Set(d, 0.07f), a7 = hn::Set(d, 0.08f), a8 = hn::Set(d, 0.09f),
       a9 = hn::Set(d, 0.10f), a10 = hn::Set(d, 0.11f), a11 = hn::Set(d, 0.12f),
       a12 = hn::Set(d, 0.13f), a13 = hn::Set(d, 0.14f), a14 = hn::Set(d, 0.15f),
       a15 = hn::Set(d, 0.16f), a16 = hn::Set(d, 0.17f), a17 = hn::Set(d, 0.18f),
       a18 = hn::Set(d, 0.19f), a19 = hn::Set(d, 0.20f);
  for (std::int64_t i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(x, y, a0);
    a1 = hn::MulAdd(x, y, a1);
    a2 = hn::MulAdd(x, y, a2);
    a3 = hn::MulAdd(x, y, a3);
    a4 = hn::MulAdd(x, y, a4);
    a5 = hn::MulAdd(x, y, a5);
    a6 = hn::MulAdd(x, y, a6);
    a7 = hn::MulAdd(x, y, a7);
    a8 = hn::MulAdd(x, y, a8);
    a9 = hn::MulAdd(x, y, a9);
    a10 = hn::MulAdd(x, y, a10);
    a11 = hn::MulAdd(x, y, a11);
    a12 = hn::MulAdd(x, y, a12);
    a13 = hn::MulAdd(x, y, a13);
    a14 = hn::MulAdd(x, y, a14);
    a15 = hn::MulAdd(x, y, a15);
    a16 = hn::MulAdd(x, y, a16);
    a17 = hn::MulAdd(x, y, a17);
    a18 = hn::MulAdd(x, y, a18);
    a19 = hn::MulAdd(x, y, a19);
  }
  *sink += hn::GetLane(hn::Add(hn::Add(hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)),
                                               hn::Add(hn::Add(a4, a5), hn::Add(a6, a7))),
                                       hn::Add(hn::Add(hn::Add(a8, a9), hn::Add(a10, a11)),
                                               hn::Add(hn::Add(a12, a13), hn::Add(a14, a15)))),
                               hn::Add(hn::Add(a16, a17), hn::Add(a18, a19))));
  return 40.0 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(twelve_chains);
HWY_EXPORT(twenty_chains);

namespace {

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// It counts all threads: each by its CPU time, each by the time that passed for it, and all by the
// time that passed until the last was done.
struct Round {
  double gflops = 0, own_gflops = 0, wall_gflops = 0;
};
double median_of_rounds(std::vector<Round> rounds, double Round::*part) {
  const auto middle = rounds.begin() + static_cast<std::ptrdiff_t>(rounds.size() / 2);
  std::nth_element(rounds.begin(), middle, rounds.end(),
                   [&](const Round& a, const Round& b) { return a.*part < b.*part; });
  return *middle.*part;
}

std::vector<PeakLoop> low_loops(std::string_view dtype) {
  if (multiplied_in(dtype) == "bf16") return low_peak_loops();
  return multiplied_in(dtype) == "int8" ? i8_peak_loops() : std::vector<PeakLoop>{};
}

std::vector<PeakRounds::Loop> loops_of(std::string_view dtype) {
  std::vector<PeakRounds::Loop> out;
  for (const PeakLoop& loop : low_loops(dtype))
    out.push_back([loop](float*) { return loop.run(loop.rounds); });
  if (!out.empty()) return out;
  out.push_back([](float* sink) { return HWY_DYNAMIC_DISPATCH(twenty_chains)(600'000, sink); });
  out.push_back([](float* sink) { return HWY_DYNAMIC_DISPATCH(twelve_chains)(1'000'000, sink); });
  return out;
}

Round one_round(const PeakRounds::Loop& loop, ThreadPool& pool) {
  struct alignas(64) Thread {
    double done = 0, cpu_seconds = 0, seconds = 0;
    float sink = 0;
  };
  const auto passed = [](auto since) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
  };
  std::vector<Thread> threads(static_cast<std::size_t>(pool.size()));
  const auto start = std::chrono::steady_clock::now();
  pool.parallel_for(pool.size(), [&](std::int64_t task, int) {
    Thread& t = threads[static_cast<std::size_t>(task)];
    const auto begin = std::chrono::steady_clock::now();
    const double began = thread_seconds();
    t.done = loop(&t.sink);
    t.cpu_seconds = std::max(1e-9, thread_seconds() - began);
    t.seconds = passed(begin);
  });
  const double wall = passed(start);
  Round out;
  for (const Thread& t : threads) {
    out.gflops += t.done / t.cpu_seconds * 1e-9;
    out.own_gflops += t.done / t.seconds * 1e-9;
    out.wall_gflops += t.done / wall * 1e-9;
  }
  return out;
}

MeasuredPeak measure_loop(const PeakRounds::Loop& loop, ThreadPool& pool) {
  constexpr int rounds_of_each = 8;
  std::vector<Round> rounds;
  for (int round = 0; round <= rounds_of_each; ++round) {
    const Round now = one_round(loop, pool);
    if (round > 0) rounds.push_back(now);  // the first wakes threads and clocks
  }
  // A loop in registers always takes the same time. A round far above the median is one of a thread
  // that was set aside and not charged for all that it did: it adds to the doubt, not to the peak.
  const double middle = median_of_rounds(rounds, &Round::gflops);
  double best = middle, highest = middle;
  for (const Round& r : rounds) {
    highest = std::max(highest, r.gflops);
    if (r.gflops < 1.05 * middle) best = std::max(best, r.gflops);
  }
  return {best, median_of_rounds(rounds, &Round::wall_gflops), 1 - middle / highest};
}

}  // namespace

std::string_view multiplied_in(std::string_view dtype) {
  if (dtype == "fp8") return "bf16";  // rounded to fp8, multiplied as bf16
  return dtype == "bf16" || dtype == "int8" ? dtype : "f32";
}

std::string peak_instructions(std::string_view dtype) {
  std::string out;
  for (const PeakLoop& loop : low_loops(dtype))
    out += (out.empty() ? "" : " or ") + std::string(loop.instruction);
  return out.empty() ? "f32 multiply-adds" : std::string(multiplied_in(dtype)) + " " + out;
}

PeakRounds::PeakRounds(int threads, std::string_view dtype) : pool_(threads) {
  for (const Loop& loop : loops_of(dtype)) {
    const MeasuredPeak found = measure_loop(loop, pool_);
    if (loop_ && found.gflops <= best_.gflops) continue;
    best_ = found;
    loop_ = loop;
  }
}
double PeakRounds::gflops() { return one_round(loop_, pool_).own_gflops; }

MeasuredPeak measure_peak(int threads, std::string_view dtype) {
  return PeakRounds(threads, dtype).best();
}

double measure_copy_gbytes(int threads) {
  constexpr std::size_t bytes = std::size_t{48} << 20;  // per thread: larger than any cache's share
  ThreadPool pool(threads);
  std::vector<std::vector<char>> from(static_cast<std::size_t>(threads)), to(from.size());
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(threads, [&](std::int64_t task, int) {
      const auto i = static_cast<std::size_t>(task);
      if (from[i].empty()) {  // first round: pages
        from[i].assign(bytes, 1);
        to[i].assign(bytes, 2);
      }
      std::memcpy(to[i].data(), from[i].data(), bytes);
    });
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (round > 0)
      best = std::max(best, 2.0 * static_cast<double>(bytes) * threads / seconds * 1e-9);
  }
  return best;
}

}  // namespace tessera::exec::cpu
#endif
