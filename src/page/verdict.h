// The findings of a study in plain sentences: only what its numbers hold, with the spread, and what
// they do not tell. Convention: sentences are plain text; a difference is stated as one only where
// the spreads of both sides do not meet.
#pragma once

#include <string>
#include <vector>

#include "record/stats.h"

namespace tessera::report {

// For the top of the page and for a terminal.
std::vector<std::string> verdict(const Study& study);
// The sentences of one part; those of a study include them all.
std::vector<std::string> verdict(const Part& part);

std::string part_title(const Part& part);  // the author's, or its name
// A sentence of a part as it stands below its title: capital first.
std::string without_title(const Part& part, const std::string& sentence);
// "1.23 s (1.20 s to 1.31 s, n = 3)"
std::string spread_words(const Spread& s, std::string (*words)(double));
// "; a tie within the spread", "", or that there is one run only.
std::string difference_words(Difference d);

// "a", "a and b", "a, b, c and 2 more": at most so many by name.
std::string listed(const std::vector<std::string>& names, std::size_t most);

// Points that do the same work: those with equal axes. Techniques beside a grid are compared within
// one of these, never across.
struct SameWork {
  std::string name;  // "image 16"; "" where all axes are equal
  std::vector<const Point*> points;
};
std::vector<SameWork> same_work(const Part& part);

// How many runs ended how, of a part or of all.
struct Tally {
  int runs = 0, done = 0, failed = 0, open = 0, most_repeats = 0;
  int not_run = 0;  // they wait for a device that is not here
};
Tally tally(const Part& part);
Tally tally(const Study& study);

}  // namespace tessera::report
