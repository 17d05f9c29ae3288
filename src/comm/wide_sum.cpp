// x86-64: its baseline has vectors of 16 bytes, its machines have 32 or 64. Vectors of 32 bytes
// keep up with memory, and a core need not slow down for them as some do for those of 64. Lines
// that will be written are asked for as such well before they are read: otherwise every one of
// them, which another rank has just written, crosses between the cores' caches twice. Two long
// buffers are added at two places in turns, so that more lines are on their way at once: a core by
// itself asks for only a few lines ahead in each page that it walks through.
#include "comm/wide_sum.h"

#include <x86intrin.h>

namespace tessera::comm::wide {
namespace {

using std::int64_t;

constexpr int64_t line = 64, ahead = 1024, page = 4096, long_bytes = 8 * page;  // bytes

const float* floats(const std::byte* at) { return reinterpret_cast<const float*>(at); }
float* floats(std::byte* at) { return reinterpret_cast<float*>(at); }

// Up to four buffers by name, so that they stay in registers: a store could otherwise change where
// the next one is.
struct Sources {
  const std::byte *a, *b, *c, *d;
  explicit Sources(std::span<const std::byte* const> all)
      : a(all[0]), b(all[1]), c(all[all.size() > 2 ? 2 : 0]), d(all[all.size() > 3 ? 3 : 0]) {}
};
struct Targets {
  std::byte *a, *b, *c, *d;
  explicit Targets(std::span<std::byte* const> all)
      : a(all[0]),
        b(all[all.size() > 1 ? 1 : 0]),
        c(all[all.size() > 2 ? 2 : 0]),
        d(all[all.size() > 3 ? 3 : 0]) {}
};

template <int targets>
__attribute__((target("prfchw"), always_inline)) inline void ask_for(const Targets& to,
                                                                     int64_t at) {
  _m_prefetchw(to.a + at);
  if constexpr (targets > 1) _m_prefetchw(to.b + at);
  if constexpr (targets > 2) _m_prefetchw(to.c + at);
  if constexpr (targets > 3) _m_prefetchw(to.d + at);
}

// A line is two vectors.
template <int sources, int targets>
__attribute__((target("avx2"), always_inline)) inline void add_line(const Sources& from,
                                                                    const Targets& to,
                                                                    int64_t begin) {
  for (int64_t at = begin; at < begin + line; at += line / 2) {
    __m256 sum =
        _mm256_add_ps(_mm256_loadu_ps(floats(from.a + at)), _mm256_loadu_ps(floats(from.b + at)));
    if constexpr (sources > 2) sum = _mm256_add_ps(sum, _mm256_loadu_ps(floats(from.c + at)));
    if constexpr (sources > 3) sum = _mm256_add_ps(sum, _mm256_loadu_ps(floats(from.d + at)));
    _mm256_storeu_ps(floats(to.a + at), sum);
    if constexpr (targets > 1) _mm256_storeu_ps(floats(to.b + at), sum);
    if constexpr (targets > 2) _mm256_storeu_ps(floats(to.c + at), sum);
    if constexpr (targets > 3) _mm256_storeu_ps(floats(to.d + at), sum);
  }
}

template <int sources, int targets>
__attribute__((target("avx2,prfchw"))) void sum_lines(const Sources& given, const Targets& wanted,
                                                      int64_t bytes) {
  const Sources from = given;
  const Targets to = wanted;
  // More than two buffers have enough lines on their way without a second place.
  const int64_t second = sources == 2 && bytes >= long_bytes ? bytes / 2 / page * page : 0;
  for (int64_t at = 0; at < second; at += line) {
    ask_for<targets>(to, at + ahead);
    ask_for<targets>(to, second + at + ahead);
    add_line<sources, targets>(from, to, at);
    add_line<sources, targets>(from, to, second + at);
  }
  for (int64_t at = 2 * second; at < bytes; at += line) {
    ask_for<targets>(to, at + ahead);
    add_line<sources, targets>(from, to, at);
  }
}

const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;

template <int sources, int targets>
void sum_of(std::span<const std::byte* const> from, std::span<std::byte* const> to,
            int64_t elements) {
  constexpr int64_t size = sizeof(float);
  const int64_t whole = elements * size / line * line;
  sum_lines<sources, targets>(Sources(from), Targets(to), whole);
  for (int64_t at = whole; at < elements * size; at += size) {
    __m128 last = _mm_load_ss(floats(from[0] + at));
    for (std::size_t k = 1; k < sources; ++k)
      last = _mm_add_ss(last, _mm_load_ss(floats(from[k] + at)));
    for (std::byte* const target : to) _mm_store_ss(floats(target + at), last);
  }
}

template <int sources>
bool sum_from(std::span<const std::byte* const> from, std::span<std::byte* const> to,
              int64_t elements) {
  if (to.size() == 1)
    sum_of<sources, 1>(from, to, elements);
  else if (to.size() == sources)
    sum_of<sources, sources>(from, to, elements);
  else
    return false;
  return true;
}

}  // namespace

bool sum(std::span<const std::byte* const> from, std::span<std::byte* const> to, int64_t elements) {
  if (!has_avx2) return false;
  if (from.size() == 2) return sum_from<2>(from, to, elements);
  if (from.size() == 3) return sum_from<3>(from, to, elements);
  if (from.size() == 4) return sum_from<4>(from, to, elements);
  return false;
}

}  // namespace tessera::comm::wide
