#include "report/console.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "base/printable.h"
#include "base/streams.h"
#include "files/text.h"

namespace tessera::report {

std::string with_commas(std::int64_t n) {
  std::string digits = std::to_string(n);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (n < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string duration(double s) {
  if (s < 60) return fmt::format("{:.1f} s", s);
  const auto seconds = std::llround(s);
  if (seconds < 3600) return fmt::format("{} m {} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {} m", seconds / 3600, seconds / 60 % 60);
}

std::string clock(double s) {
  const auto seconds = std::llround(s);
  if (seconds < 3600) return fmt::format("{}:{:02}", seconds / 60, seconds % 60);
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string millions(std::int64_t n) {
  return n < 100'000 ? fmt::format("{:.1f} k", static_cast<double>(n) * 1e-3)
                     : fmt::format("{:.1f} M", static_cast<double>(n) * 1e-6);
}

std::string per_second(double v) {
  if (v >= 99.95) return with_commas(std::llround(v));
  return v >= 9.995 ? fmt::format("{:.1f}", v) : fmt::format("{:.3g}", v);
}

std::string wrapped(const std::string& text, int columns) {
  constexpr std::size_t indent = 4;
  const auto most = static_cast<std::size_t>(columns);
  const auto shown = [](std::string_view part) {  // characters, not bytes
    return static_cast<std::size_t>(std::count_if(part.begin(), part.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    }));
  };
  std::string out, rest = text;
  while (shown(rest) > most) {
    std::size_t cut = rest.npos, seam = rest.npos;  // a seam: between columns of a line
    for (std::size_t at = rest.find(' ', indent + 1); at != rest.npos;
         at = rest.find(' ', at + 1)) {
      if (shown(std::string_view(rest).substr(0, at)) > most) break;
      cut = at;
      const std::string_view after = std::string_view(rest).substr(at);
      if (at > most / 2 && (after.starts_with(" |") || after.starts_with("  "))) seam = at;
    }
    if (seam != rest.npos) cut = seam;
    if (cut == rest.npos) break;  // one long word: the terminal cuts it
    std::string line = rest.substr(0, cut);
    line.erase(line.find_last_not_of(" |") + 1);
    out += line + "\n";
    const std::size_t next = rest.find_first_not_of(" |", cut);
    rest = next == rest.npos ? "" : std::string(indent, ' ') + rest.substr(next);
  }
  return out + rest;
}

std::string bar_text(double fraction, double elapsed_s, double left_s, const std::string& doing,
                     int columns) {
  constexpr int widest = 32, narrowest = 8;
  const std::string percent = fmt::format("] {:3.0f}%", fraction * 100);
  std::string rest = percent;
  // One column stays free: a terminal whose last one is written goes to the next line.
  const auto room = [&] { return columns - 2 - static_cast<int>(rest.size()); };
  for (const std::string& part :
       {fmt::format("  eta {}", duration(left_s)), fmt::format("   {} elapsed", clock(elapsed_s)),
        doing.empty() ? "" : "  " + doing})
    if (room() - static_cast<int>(part.size()) >= narrowest) rest += part;
  const int width = std::clamp(room(), 0, widest);
  const int filled = std::clamp(static_cast<int>(fraction * width), 0, width);
  return "[" + std::string(static_cast<std::size_t>(filled), '#') +
         std::string(static_cast<std::size_t>(width - filled), '-') + rest;
}

void say_note(const std::string& text) { Console().line("note: " + text); }

void say_cut(const std::string& lines) {
  const int columns = stdout_columns();
  std::string out;
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);)
    out += (columns > 0 ? wrapped(line, columns) : line) + "\n";
  say_lines(stdout, out);
}

namespace {

// The first word of a line in its colour.
std::string coloured(const std::string& text) {
  for (const auto& [word, code] :
       {std::pair("warning:", "\033[33m"), std::pair("note:", "\033[36m"),
        std::pair("eval ", "\033[32m"), std::pair("done ", "\033[32m")})
    if (const std::string_view head = word; text.starts_with(head))
      return code + std::string(head) + "\033[0m" + text.substr(head.size());
  return text;
}

}  // namespace

Console::Console() : columns_(terminal_columns()) {
  const char* no_color = std::getenv("NO_COLOR");
  color_ = columns_ > 0 && !(no_color && *no_color);
}

void Console::log_to(const std::string& path) { log_ = path; }

void Console::clear() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

void Console::show(const std::string& text) {
  clear();
  const std::string shown = columns_ > 0 ? wrapped(text, columns_) : text;
  std::fputs(((color_ ? coloured(shown) : shown) + "\n").c_str(), stderr);
  std::fflush(stderr);
}

void Console::line(const std::string& given) {
  const std::string text = printable(given, given.npos);
  if (!quiet_) show(text);
  if (log_.empty()) return;
  try {
    files::append_text(log_, text + "\n");
  } catch (const Error& error) {
    if (!std::exchange(log_lacks_lines_, true))
      show(printable(fmt::format("note: {} lacks lines from here on: {}{}{}", log_, error.message,
                                 error.hint.empty() ? "" : "; ", error.hint),
                     std::string::npos));
  }
}

void Console::bar(double fraction, double elapsed, double left, const std::string& doing) {
  if (columns_ == 0 || quiet_) return;
  clear();
  if (left < 0) left = fraction > 0 ? elapsed * (1 - fraction) / fraction : 0;
  std::fputs(bar_text(fraction, elapsed, left, doing, columns_).c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void Console::finish() { clear(); }

}  // namespace tessera::report
