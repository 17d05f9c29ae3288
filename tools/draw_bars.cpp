// Draws bars with their spread as a page of Tessera has them, for tools/make_pictures.py:
//
//   ninja -C build draw_bars && build/draw_bars TITLE AXIS PART... < ROWS > FIGURE.svg
//
// Convention: a row is a line of six fields between tabs: the group, the name, which of the parts
// (from 0), the value, the least and the most ("-" where they are not known).
#include <fmt/format.h>

#include <exception>
#include <iostream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "page/figures/figure.h"
#include "report/html.h"

namespace {

using tessera::report::BarFigure;
using tessera::report::BarRow;

BarRow row_of(const std::string& line, std::size_t parts) {
  std::vector<std::string> fields;
  std::istringstream text(line);
  for (std::string field; std::getline(text, field, '\t');) fields.push_back(field);
  if (fields.size() != 6) throw std::runtime_error("six fields were expected: " + line);
  const auto number = [](const std::string& field) {
    return field == "-" ? std::numeric_limits<double>::quiet_NaN() : std::stod(field);
  };
  BarRow row{
      .group = fields[0], .name = fields[1], .values = std::vector<double>(parts), .total = {}};
  const double value = number(fields[3]);
  row.values.at(std::stoul(fields[2])) = value;
  row.total = value < 1000 ? tessera::report::three(value) : fmt::format("{:.0f}", value);
  for (std::size_t at = row.total.size(); value >= 1000 && at > 3;) row.total.insert(at -= 3, ",");
  row.low = number(fields[4]);
  row.high = number(fields[5]);
  return row;
}

}  // namespace

int main(int count, char** words) {
  try {
    if (count < 4) throw std::runtime_error("usage: draw_bars TITLE AXIS PART... < ROWS");
    BarFigure figure{.title = words[1],
                     .caption = {},
                     .x_label = words[2],
                     .parts = {},
                     .beside = {},
                     .rows = {}};
    figure.parts.assign(words + 3, words + count);
    for (std::string line; std::getline(std::cin, line);)
      figure.rows.push_back(row_of(line, figure.parts.size()));
    std::cout << tessera::report::bar_figure(figure);
  } catch (const std::exception& error) {
    std::cerr << "draw_bars: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
