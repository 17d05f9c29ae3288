// Tables of a page, and the same numbers as CSV for whoever calculates on.
// Convention: cells are plain text until they are written; a CSV cell of text that a spreadsheet
// would take for a formula begins with an apostrophe; numbers have all their digits there, and what
// is not known is empty.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "record/stats.h"

namespace tessera::report {

struct Cell {
  std::string text, range = {};  // range: small, below it
  std::string look = {};         // "", best, good, bad
};
struct Column {
  std::string name;
  bool text = false;  // left, may wrap
};
struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
  std::string caption;
};
std::string html_table(const Table& table);
std::string markdown_table(const Table& table);
// Any text in a line of Markdown: nothing in it is markup.
std::string markdown_text(const std::string& text);

using Words = std::function<std::string(double)>;
// Median with "low to high" below it where there are several.
Cell spread_cell(const Spread& s, const Words& words);
// A signed difference of two losses: "+2.00e-07", "0".
std::string apart_words(double v);
// Marks the least (or greatest) of a column, and those that the spread does not tell from it.
// Nothing with fewer than two values. by: what the column shows.
void mark_best(Table& table, std::size_t column, const std::vector<Spread>& values, bool least,
               double Spread::*by = &Spread::median);

class Csv {
 public:
  explicit Csv(const std::vector<std::string>& header);
  Csv& text(const std::string& value);
  Csv& number(double value);
  Csv& whole(std::int64_t value);
  void end();
  const std::string& str() const { return out_; }

 private:
  void cell(const std::string& value);
  std::string out_;
  bool first_ = true;
};

// Every table of a study: (file name, CSV).
std::vector<std::pair<std::string, std::string>> csv_files(const Study& study);

}  // namespace tessera::report
