// Offsets in the arena. Two greedy strategies, the better one wins: in the order in which intervals
// open, each into the smallest gap that holds it; or the largest first, each at the lowest place
// that is free during its life.
#include <algorithm>
#include <map>
#include <numeric>

#include "plan/plan.h"

namespace tessera::plan {
namespace {

Layout by_time(const std::vector<Interval>& intervals) {
  Layout out;
  out.offsets.assign(intervals.size(), 0);
  std::vector<std::size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), 0);
  // Long-lived ones first among equals, so that what stays sits below what goes.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return intervals[a].first != intervals[b].first ? intervals[a].first < intervals[b].first
                                                    : intervals[a].last > intervals[b].last;
  });
  std::map<std::int64_t, std::int64_t> gaps;  // offset -> bytes, never adjacent
  std::multimap<int, std::size_t> closing;    // last step -> interval
  std::int64_t live = 0;
  auto release = [&](std::int64_t offset, std::int64_t bytes) {
    auto next = gaps.lower_bound(offset);
    if (next != gaps.end() && offset + bytes == next->first) {
      bytes += next->second;
      next = gaps.erase(next);
    }
    if (next != gaps.begin())
      if (auto before = std::prev(next); before->first + before->second == offset) {
        before->second += bytes;
        return;
      }
    gaps.emplace(offset, bytes);
  };
  for (const std::size_t i : order) {
    const Interval& now = intervals[i];
    if (now.bytes == 0) continue;
    while (!closing.empty() && closing.begin()->first < now.first) {
      const std::size_t done = closing.begin()->second;
      closing.erase(closing.begin());
      release(out.offsets[done], intervals[done].bytes);
      live -= intervals[done].bytes;
    }
    auto best = gaps.end();
    for (auto gap = gaps.begin(); gap != gaps.end(); ++gap)
      if (gap->second >= now.bytes && (best == gaps.end() || gap->second < best->second))
        best = gap;
    if (best != gaps.end()) {
      out.offsets[i] = best->first;
      const std::int64_t rest = best->second - now.bytes, tail = best->first + now.bytes;
      gaps.erase(best);
      if (rest > 0) gaps.emplace(tail, rest);
    } else if (!gaps.empty() &&
               std::prev(gaps.end())->first + std::prev(gaps.end())->second == out.bytes) {
      out.offsets[i] = std::prev(gaps.end())->first;  // the last gap reaches the end: grow it
      out.bytes = out.offsets[i] + now.bytes;
      gaps.erase(std::prev(gaps.end()));
    } else {
      out.offsets[i] = out.bytes;
      out.bytes += now.bytes;
    }
    closing.emplace(now.last, i);
    live += now.bytes;
    if (live > out.live) {
      out.live = live;
      out.peak_step = now.first;
    }
  }
  return out;
}

// Offsets only.
Layout by_size(const std::vector<Interval>& intervals) {
  Layout out;
  out.offsets.assign(intervals.size(), 0);
  std::vector<std::size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return intervals[a].bytes > intervals[b].bytes;
  });
  std::vector<std::size_t> placed, beside;
  for (const std::size_t i : order) {
    const Interval& now = intervals[i];
    if (now.bytes == 0) break;
    beside.clear();
    for (const std::size_t j : placed)
      if (intervals[j].first <= now.last && now.first <= intervals[j].last) beside.push_back(j);
    std::sort(beside.begin(), beside.end(),
              [&](std::size_t a, std::size_t b) { return out.offsets[a] < out.offsets[b]; });
    std::int64_t at = 0;
    for (const std::size_t j : beside) {
      if (out.offsets[j] >= at + now.bytes) break;
      at = std::max(at, out.offsets[j] + intervals[j].bytes);
    }
    out.offsets[i] = at;
    out.bytes = std::max(out.bytes, at + now.bytes);
    placed.push_back(i);
  }
  return out;
}

}  // namespace

Layout lay_out(const std::vector<Interval>& intervals) {
  constexpr std::size_t most = 8192;  // the second strategy is quadratic
  Layout out = by_time(intervals);
  if (out.bytes == out.live || intervals.size() > most) return out;
  if (Layout other = by_size(intervals); other.bytes < out.bytes) {
    out.offsets = std::move(other.offsets);
    out.bytes = other.bytes;
  }
  return out;
}

}  // namespace tessera::plan
