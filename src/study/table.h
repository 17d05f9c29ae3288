// The display of a running study: on a terminal one table that is drawn again and again, with a
// line of progress under it; in a pipe one line per finished run. Convention: it speaks on stderr;
// everything from outside goes through printable().
#pragma once

#include <string>
#include <vector>

#include "record/study.h"

namespace tessera::study {

// The table as lines: part, point, repeats done (and failed), speed with its spread, time of an
// epoch, speed-up (of scaling as the verdict has it, of techniques against the first one with the
// same axes, else against the part's first point), test accuracy. `columns`: of the terminal;
// longer lines are cut.
std::vector<std::string> table_lines(const report::Study& study, int columns);
// "7 of 12 runs done, 1 failed, 3 m 2 s so far, about 2 m 10 s to go".
std::string progress_line(const report::Study& study);
// "strong run.np=2, repeat 1 of 3: 123.4 img/s, 4.51 s an epoch, test top-1 34.2% (12.3 s)" or why
// it failed.
std::string run_line(const report::Part& part, const report::Point& point,
                     const report::Repeat& repeat);
// "run.np=2 batch.global=64".
std::string point_words(const report::Point& point);
// ", repeat 1 of 3" of repeat 0; "" where there is but one. People count from 1.
std::string repeat_words(int number, std::size_t repeats);
// A line that cannot be written, to a terminal that is gone or a full disk, is dropped: no run is
// lost for it.

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
