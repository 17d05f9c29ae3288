// The language in which a claim names its number, parsed completely before anything runs:
//
//   expression = term { ("+" | "-") term }         term = factor { ("*" | "/") factor }
//   factor     = NUMBER | "-" factor | "(" expression ")" | ("min" | "max" | "abs") "(" expression
//   { "," expression } ")" | quantity quantity   = METRIC [ "[" ROW "]" ] "(" PART [ ";" KEY "="
//   VALUE { "," KEY "=" VALUE } ] ")" condition  = (">=" | ">" | "<=" | "<") NUMBER | "between"
//   NUMBER "and" NUMBER
//
// A VALUE ends at "," or ")" outside brackets, or stands in quotes. Convention: an expression is
// kept as steps for a stack of numbers, so that nothing recurses when it is evaluated; depth and
// length of what is read are limited.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::study {

inline constexpr std::size_t kLongestExpression = 2000;  // bytes
inline constexpr int kDeepestExpression = 40;            // parentheses and signs inside one another

// One number of the runs of one point, over its repeats.
struct Quantity {
  std::string metric, row;  // row: of a table of layers, a rank, or an epoch
  std::string part;
  std::vector<std::pair<std::string, std::string>> where;  // key of the grid, or `technique`
  std::string repeat = "median";                           // median | mean | min | max
  std::size_t begin = 0, end = 0;                          // its bytes in the text
};

struct Expression {
  enum class Do : std::uint8_t {
    number,
    quantity,
    add,
    subtract,
    multiply,
    divide,
    negate,
    least,
    greatest,
    absolute
  };
  struct Step {
    Do what = Do::number;
    double number = 0;
    std::size_t count = 0;  // quantity: which; least, greatest: of how many
  };
  std::vector<Step> steps;
  std::vector<Quantity> quantities;
  // Values stand in the order of `quantities`.
  double evaluate(std::span<const double> values) const;
};

struct Condition {
  double least = 0, most = 0;
  bool least_open = false, most_open = false;  // open: the limit itself does not hold
  bool holds(double number) const;
};

// Throw Error(usage) with the position in `text` (column, from 1) in the message.
Expression parse_expression(std::string_view text);
Condition parse_condition(std::string_view text);

}  // namespace tessera::study
