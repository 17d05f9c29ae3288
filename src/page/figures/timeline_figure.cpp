// A step's timeline and the topology of a run, drawn.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "page/figures/figure.h"
#include "report/html.h"
#include "report/pipeline_chart.h"

namespace tessera::report {
namespace {

constexpr double lane_width = 960;

std::string lane_class(const std::string& category) {
  if (category == "compute") return "fg-compute";
  if (category == "post" || category == "poll") return "fg-exposed";
  if (category == "wait") return "fg-wait";
  if (category == "data") return "fg-data";
  if (category == "flight") return "fg-flight";
  return "fg-host";
}

}  // namespace

std::string timeline_figure(const std::string& title, const std::string& caption,
                            const std::vector<std::vector<TimelineBar>>& ranks) {
  Canvas canvas(lane_width, title, caption);
  canvas.legend({{"compute", "fg-compute"},
                 {"hand over, move on", "fg-exposed"},
                 {"wait", "fg-wait"},
                 {"data", "fg-data"},
                 {"host", "fg-host"},
                 {"message under way", "fg-flight"}},
                12);
  double span = 0;
  for (const auto& rank : ranks)
    for (const TimelineBar& b : rank) span = std::max(span, b.end);
  if (span <= 0) {
    canvas.text(lane_width / 2, canvas.y() + 40, "fg-soft", "nothing in it", "middle");
    return canvas.finish(canvas.y() + 80);
  }
  const double left = 74, right = lane_width - 24;
  const auto x = [&](double ms) { return left + std::clamp(ms / span, 0.0, 1.0) * (right - left); };
  canvas.down(8);
  const double top = canvas.y();
  double y = top;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    int lanes = 0;
    for (const TimelineBar& b : ranks[r]) lanes = std::max(lanes, b.lane);
    const double high = 22 + 7.0 * lanes;
    canvas.rect(left, y, right - left, high, "fg-row");
    canvas.text(left - 8, y + 15, "fg-text", fmt::format("rank {}", r), "end");
    // A bar too narrow to see joins the one before it, if that is of the same kind.
    std::map<int, TimelineBar> open;
    const auto put = [&](const TimelineBar& b) {
      const double w = std::max(x(b.end) - x(b.start), 0.4);
      canvas.rect(
          x(b.start), b.lane == 0 ? y + 1 : y + 16 + 7.0 * b.lane, w, b.lane == 0 ? 20 : 5,
          lane_class(b.category),
          fmt::format("rank {}: {}, {} from {}", r, b.name, seconds_text((b.end - b.start) * 1e-3),
                      seconds_text(b.start * 1e-3)));
    };
    for (const TimelineBar& b : ranks[r]) {
      const auto found = open.find(b.lane);
      if (found == open.end()) {
        open.emplace(b.lane, b);
        continue;
      }
      TimelineBar& last = found->second;
      if (lane_class(last.category) == lane_class(b.category) && x(b.start) - x(last.end) < 0.3 &&
          (x(last.end) - x(last.start) < 1.2 || x(b.end) - x(b.start) < 1.2)) {
        if (!last.name.ends_with(" and more")) last.name = shorten(last.name, 80) + " and more";
        last.end = std::max(last.end, b.end);
      } else {
        put(last);
        last = b;
      }
    }
    for (const auto& [lane, b] : open) put(b);
    y += high + 5;
  }
  const TimeAxis axis = time_axis(span, 10);
  for (int i = 0; i < 64 && i * axis.step_ms <= span * (1 + 1e-9); ++i) {
    canvas.line(x(i * axis.step_ms), y, x(i * axis.step_ms), y + 4, "fg-axis");
    canvas.text(x(i * axis.step_ms), y + 17, "fg-soft", axis.label(i * axis.step_ms), "middle");
  }
  canvas.text(left - 8, y + 17, "fg-soft", axis.unit, "end");
  return canvas.finish(y + 28);
}

std::string topology_figure(const std::string& title, const std::vector<TopologyRank>& ranks,
                            int cores) {
  Canvas canvas(lane_width, title,
                "A box for each host, in it its ranks with their device and threads.");
  std::vector<std::string> hosts;
  for (const TopologyRank& r : ranks)
    if (std::find(hosts.begin(), hosts.end(), r.host) == hosts.end()) hosts.push_back(r.host);
  constexpr double cell_w = 132, cell_h = 54, margin = 12;
  double x = margin, y = canvas.y() + 8, row = 0;
  for (std::size_t h = 0; h < hosts.size() && h < 64; ++h) {
    std::vector<std::size_t> of;
    for (std::size_t r = 0; r < ranks.size(); ++r)
      if (ranks[r].host == hosts[h]) of.push_back(r);
    const std::size_t shown = std::min<std::size_t>(of.size(), 64),
                      across = std::min<std::size_t>(shown, hosts.size() == 1 ? 6 : 3);
    const double w = std::max(170.0, 16 + cell_w * static_cast<double>(across)),
                 down = std::ceil(static_cast<double>(shown) / static_cast<double>(across));
    const double high = 38 + cell_h * down;
    if (x > margin && x + w > lane_width - margin) {
      x = margin;
      y += row + 12;
      row = 0;
    }
    canvas.rect(x, y, w, high, "fg-box", "", 8);
    const std::string said =
        (hosts[h].empty() ? "host" : hosts[h]) +
        (cores > 0 ? fmt::format(", {} core{}", cores, cores == 1 ? "" : "s") : "");
    canvas.text(x + 10, y + 20, "fg-text fg-head",
                shorten(said, static_cast<std::size_t>((w - 20) / 7.4)), "start", said);
    for (std::size_t i = 0; i < shown; ++i) {
      const TopologyRank& r = ranks[of[i]];
      const double cx = x + 8 + cell_w * static_cast<double>(i % across),
                   cy = y + 30 +
                        cell_h * std::floor(static_cast<double>(i) / static_cast<double>(across));
      const std::string device = fmt::format(
          "{}{}", r.device.empty() ? "device" : r.device,
          r.threads > 0 ? fmt::format(", {} thread{}", r.threads, r.threads == 1 ? "" : "s") : "");
      canvas.rect(cx + 2, cy, cell_w - 6, cell_h - 6, "fg-page",
                  fmt::format("rank {} on {}: {}; computes {} of its step", of[i], r.host, device,
                              percent(r.share)),
                  5);
      canvas.text(cx + 10, cy + 16, "fg-text", fmt::format("rank {}", of[i]));
      canvas.text(cx + 10, cy + 31, "fg-soft", shorten(device, 16), "start", device);
      if (std::isfinite(r.share)) {
        canvas.rect(cx + 10, cy + 37, cell_w - 24, 5, "fg-row");
        canvas.rect(cx + 10, cy + 37, (cell_w - 24) * std::clamp(r.share, 0.0, 1.0), 5,
                    "fg-compute");
      }
    }
    x += w + 12;
    row = std::max(row, high);
  }
  return canvas.finish(y + row + 12);
}

}  // namespace tessera::report
