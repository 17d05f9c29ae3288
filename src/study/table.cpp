#include "study/table.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>

#include "base/printable.h"
#include "base/say.h"
#include "page/scaling.h"
#include "report/console.h"

namespace tessera::study {
namespace {

using report::Outcome;
using report::RunRecord;

// "123.4 +- 0.6": half of what lies between the least and the greatest repeat.
std::string with_spread(const report::Spread& s, int digits) {
  if (!s.known()) return "";
  return s.n == 1 ? fmt::format("{:.{}f}", s.median, digits)
                  : fmt::format("{:.{}f} +-{:.{}f}", s.median, digits, s.wide() / 2, digits);
}

double percent_top1(const RunRecord& r) { return r.test_top1 * 100; }

// The speedup of each point, as the verdict has it; nothing where a part is not about time.
std::map<const report::Point*, double> speedups_of(const report::Part& part) {
  using report::PartKind;
  std::map<const report::Point*, double> out;
  if (part.kind == PartKind::accuracy || part.kind == PartKind::layers) return out;
  if (part.kind == PartKind::strong || part.kind == PartKind::weak) {
    for (const report::Scaling& series : report::scaling_of(part))
      for (const report::ScalingPoint& p : series.points) out[p.point] = p.speedup;
    return out;
  }
  const bool by_images =
      part.verb == "infer" || part.kind != PartKind::techniques;  // batches differ
  const report::Measure measure =
      by_images ? report::measures::images_per_s : report::time_of(part).of;
  const auto median = [&](const report::Point& p) { return report::spread_of(p, measure).median; };
  for (const report::Point& p : part.points) {
    // Techniques beside a grid do the same work only where their axes are equal.
    const report::Point* base =
        part.kind == PartKind::techniques ? report::baseline_of(part, p) : &part.points.front();
    if (base) out[&p] = by_images ? median(p) / median(*base) : median(*base) / median(p);
  }
  return out;
}

std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string cut_to(const std::string& text, int columns) {
  if (columns <= 0 || width_of(text) <= static_cast<std::size_t>(columns)) return text;
  std::string out;
  int taken = 0;
  for (std::string_view rest = text; !rest.empty() && taken < columns - 1; ++taken) {
    const std::size_t n = std::max<std::size_t>(1, utf8_length(rest));
    out += rest.substr(0, n);
    rest.remove_prefix(n);
  }
  return out + "~";
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string point_words(const report::Point& point) {
  std::string out = printable(point.technique, 60);
  for (const auto& [key, value] : point.axes)
    out += (out.empty() ? "" : " ") + printable(key, 60) + "=" + printable(value, 60);
  return out.empty() ? "-" : out;
}

std::string repeat_words(int number, std::size_t repeats) {
  return repeats > 1 ? fmt::format(", repeat {} of {}", number + 1, repeats) : "";
}

std::vector<std::string> table_lines(const report::Study& study, int columns) {
  std::vector<std::vector<std::string>> rows = {
      {"part", "point", "done", "img/s", "s an epoch", "speed-up", "test top-1"}};
  for (const report::Part& part : study.parts) {
    const auto speedups = speedups_of(part);
    for (const report::Point& point : part.points) {
      const auto count = [&](Outcome o) {
        return std::count_if(point.repeats.begin(), point.repeats.end(),
                             [&](const report::Repeat& r) { return r.outcome == o; });
      };
      std::string done = fmt::format("{}/{}", count(Outcome::done), point.repeats.size());
      if (count(Outcome::failed) > 0) done += fmt::format(" ({} failed)", count(Outcome::failed));
      if (count(Outcome::running) > 0) done += " *";
      if (!part.missing.empty() && count(Outcome::waiting) > 0)
        done += (count(Outcome::done) > 0 ? ", rest" : "") +
                (" not run: " + part.missing.substr(0, part.missing.find(" (")));
      const report::Spread s = report::spread_of(point, report::measures::images_per_s),
                           t = report::spread_of(point, percent_top1);
      const auto found = speedups.find(&point);
      const double ratio = found == speedups.end() ? report::kUnknown : found->second;
      rows.push_back({printable(part.name, 40), point_words(point), done,
                      with_spread(s, s.median < 10 ? 2 : 1),
                      with_spread(report::spread_of(point, report::measures::epoch_seconds), 2),
                      std::isfinite(ratio) ? fmt::format("{:.2f}x", ratio) : "",
                      t.known() ? with_spread(t, 2) + "%" : ""});
    }
  }
  std::vector<std::size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  std::vector<std::string> out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string space(widths[c] - width_of(row[c]), ' ');
      line += (c == 0 ? "" : "  ") + (c < 3 ? row[c] + space : space + row[c]);
    }
    out.push_back(cut_to(line.substr(0, line.find_last_not_of(' ') + 1), columns));
  }
  return out;
}

std::string progress_line(const report::Study& study) {
  int done = 0, failed = 0, all = 0, not_run = 0;
  for (const report::Part& part : study.parts)
    for (const report::Point& point : part.points)
      for (const report::Repeat& r : point.repeats) {
        ++all;
        done += r.outcome == Outcome::done;
        failed += r.outcome == Outcome::failed;
        not_run += r.outcome == Outcome::waiting && !part.missing.empty();
      }
  std::string out = fmt::format("{} of {} runs done{}{}, {} of runs so far", done, all,
                                failed ? fmt::format(", {} failed", failed) : "",
                                not_run ? fmt::format(", {} not run", not_run) : "",
                                report::duration(study.elapsed));
  if (done + failed + not_run < all && std::isfinite(study.remaining) && study.remaining > 0)
    out += ", about " + report::duration(study.remaining) + " to go";
  return out;
}

std::string run_line(const report::Part& part, const report::Point& point,
                     const report::Repeat& repeat) {
  std::string out = fmt::format("{} {}{}: ", printable(part.name, 40), point_words(point),
                                repeat_words(repeat.number, point.repeats.size()));
  if (repeat.outcome == Outcome::failed) return out + "failed: " + printable(repeat.reason);
  if (!repeat.record) return out + "waiting";
  const RunRecord& r = *repeat.record;
  std::vector<std::string> facts;
  if (std::isfinite(r.images_per_s)) facts.push_back(fmt::format("{:.1f} img/s", r.images_per_s));
  if (std::isfinite(r.latency_ms)) facts.push_back(fmt::format("{:.2f} ms a batch", r.latency_ms));
  if (std::isfinite(r.epoch_seconds))
    facts.push_back(fmt::format("{:.2f} s an epoch", r.epoch_seconds));
  if (std::isfinite(r.test_top1))
    facts.push_back(fmt::format("test top-1 {:.2f}%", r.test_top1 * 100));
  for (const std::string& fact : facts) out += fact + ", ";
  return out + report::duration(repeat.wall);
}

LiveTable::LiveTable(bool quiet) : quiet_(quiet), terminal_(::isatty(STDERR_FILENO) != 0) {}

void LiveTable::clear() {
  if (drawn_ > 0) std::fputs(fmt::format("\033[{}A\r\033[J", drawn_).c_str(), stderr);
  drawn_ = 0;
}

void LiveTable::line(const std::string& text) {
  if (quiet_) return;
  clear();
  say_lines(stderr, text + "\n");
}

void LiveTable::draw(const report::Study& study, const std::string& now, bool at_once) {
  if (quiet_ || !terminal_ || (!at_once && now_s() - last_ < 0.2)) return;
  last_ = now_s();
  struct winsize size = {};
  const bool known =
      ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
  const int columns = known ? size.ws_col - 1 : 119, most = (known ? size.ws_row : 40) - 3;
  std::vector<std::string> lines = table_lines(study, columns);
  // Lines that do not fit are left out around those that run now.
  if (static_cast<int>(lines.size()) > most && most > 2) {
    const auto running = std::find_if(lines.begin(), lines.end(),
                                      [](const std::string& l) { return l.find(" *") != l.npos; });
    const auto at = std::clamp<std::ptrdiff_t>(
        (running == lines.end() ? 0 : running - lines.begin()) - most / 2, 1,
        static_cast<std::ptrdiff_t>(lines.size()) - most + 1);
    std::vector<std::string> shown = {lines[0]};
    shown.insert(shown.end(), lines.begin() + at, lines.begin() + at + most - 1);
    lines = std::move(shown);
  }
  clear();
  lines.push_back(cut_to(progress_line(study), columns));
  if (!now.empty()) lines.push_back(cut_to(now, columns));
  std::string text;
  for (const std::string& l : lines) text += l + "\n";
  say_lines(stderr, text);
  drawn_ = static_cast<int>(lines.size());
}

}  // namespace tessera::study
