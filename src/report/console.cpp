#include "report/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "base/printable.h"

namespace tessera::report {

std::string with_commas(std::int64_t n) {
  std::string digits = std::to_string(n);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (n < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string duration(double s) {
  if (s < 60) return fmt::format("{:.1f} s", s);
  const auto seconds = static_cast<std::int64_t>(s + 0.5);
  if (seconds < 3600) return fmt::format("{} m {} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {} m", seconds / 3600, seconds / 60 % 60);
}

std::string clock(double s) {
  const auto seconds = static_cast<std::int64_t>(s + 0.5);
  if (seconds < 3600) return fmt::format("{}:{:02}", seconds / 60, seconds % 60);
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string millions(std::int64_t n) {
  return n < 100'000 ? fmt::format("{:.1f} k", static_cast<double>(n) * 1e-3)
                     : fmt::format("{:.1f} M", static_cast<double>(n) * 1e-6);
}

Console::Console() : terminal_(::isatty(STDERR_FILENO) != 0) {
  const char* no_color = std::getenv("NO_COLOR");
  color_ = terminal_ && !(no_color && *no_color);
}

void Console::log_to(const std::string& path) { log_ = path; }

void Console::clear() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

void Console::line(const std::string& given) {
  const std::string text = printable(given, given.npos);
  if (!quiet_) {
    clear();
    std::fputs((text + "\n").c_str(), stderr);
    std::fflush(stderr);
  }
  if (!log_.empty()) std::ofstream(log_, std::ios::app) << text << "\n";
}

void Console::bar(double fraction, double elapsed) {
  if (!terminal_ || quiet_) return;
  clear();
  constexpr int width = 32;
  const int filled = std::clamp(static_cast<int>(fraction * width), 0, width);
  const double left = fraction > 0 ? elapsed * (1 - fraction) / fraction : 0;
  std::fputs(fmt::format("[{}{}] {:3.0f}%  eta {}   {} elapsed",
                         std::string(static_cast<std::size_t>(filled), '#'),
                         std::string(static_cast<std::size_t>(width - filled), '-'), fraction * 100,
                         duration(left), clock(elapsed))
                 .c_str(),
             stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void Console::finish() { clear(); }

}  // namespace tessera::report
