// What a person sees while a study runs: on a terminal one table that is drawn again and again, with a line of progress under it; in a pipe
// one line per finished run. Convention: it speaks on stderr; everything from outside goes through printable().
#pragma once

#include <string>
#include <vector>

#include "report/study.h"

namespace tessera::study {

// The table as lines: part, point, repeats done (and failed), speed with its spread, time of an epoch, speed-up against the part's first
// point, test accuracy. `columns`: of the terminal; longer lines are cut.
std::vector<std::string> table_lines(const report::Study& study, int columns);
// "7 of 12 runs done, 1 failed, 3 m 2 s so far, about 2 m 10 s to go".
std::string progress_line(const report::Study& study);
// "strong run.np=2, repeat 0: 123.4 img/s, 4.51 s an epoch, test top-1 34.2% (12.3 s)" or why it failed.
std::string run_line(const report::Part& part, const report::Point& point, const report::Repeat& repeat);
// "run.np=2 batch.global=64".
std::string point_words(const report::Point& point);

class LiveTable {
 public:
  explicit LiveTable(bool quiet);
  void line(const std::string& text);  // stays above the table
  // `now`: what is being done; nothing is drawn twice within a fifth of a second.
  void draw(const report::Study& study, const std::string& now, bool at_once = false);
  void clear();
  bool terminal() const { return terminal_; }

 private:
  bool quiet_, terminal_;
  int drawn_ = 0;  // lines
  double last_ = 0;
};

}  // namespace tessera::study
