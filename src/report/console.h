// Output for people: numbers with units, a bar on a terminal, plain lines in a pipe. Messages go to
// stderr, data to stdout.
#pragma once

#include <cstdint>
#include <string>

#include "base/say.h"

namespace tessera::report {

std::string with_commas(std::int64_t n);  // 50,000
std::string duration(double seconds);     // "2 h 33 m", "4 m 12 s", "8.1 s"
std::string clock(double seconds);        // "17:42", "1:02:03"
std::string millions(std::int64_t n);     // "5.4 M"

// Digits that tell slow from slower: "1,234", "56.7", "0.123".
std::string per_second(double value);
// Cut between words so that no line has more columns; those that follow are indented.
std::string wrapped(const std::string& text, int columns);
// The bar's line in that many columns: what there is no room for is left out, from its end.
std::string bar_text(double fraction, double elapsed_s, double left_s, const std::string& doing,
                     int columns);

// A remark on stderr, in the look of all verbs: coloured and cut on a terminal.
void say_note(const std::string& text);
// Sentences on stdout, each a line; they are cut between words where stdout is a terminal.
void say_cut(const std::string& lines);
template <class... T>
void say_sentence(fmt::format_string<Shown<T>...> format, const T&... arguments) {
  say_cut(fmt::format(format, shown(arguments)...));
}

class Console {
 public:
  Console();  // looks at stderr and NO_COLOR
  // A line of its own, above the bar; also appended to the log when there is one. A log that cannot
  // be written is told once, also to who asked for quiet.
  void line(const std::string& text);
  // Redraws the bar (terminal only). left_s: seconds to go; below 0: as the elapsed ones tell.
  // `doing`: at its end.
  void bar(double fraction, double elapsed_s, double left_s = -1, const std::string& doing = "");
  void finish();  // leaves the bar's line
  void log_to(const std::string& path);
  bool terminal() const { return columns_ > 0; }
  bool color() const { return color_; }
  void set_quiet(bool quiet) { quiet_ = quiet; }

 private:
  void clear();
  void show(const std::string& text);
  int columns_ = 0;  // 0: no terminal
  bool color_ = false, quiet_ = false, drawn_ = false, log_lacks_lines_ = false;
  std::string log_;
};

}  // namespace tessera::report
