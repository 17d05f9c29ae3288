// A value as it was written, before a field gives it a meaning: what TOML, JSON and the command
// line have in common. Convention: toml++ is seen by toml_text.cpp alone; everything else speaks
// Value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/problem.h"

namespace tessera::config {

struct Value {
  enum class Kind { boolean, integer, real, text, list, table, other };
  Kind kind = Kind::other;
  bool boolean = false;
  std::int64_t integer = 0;
  double real = 0.0;
  std::string text = "a nested value";  // for `other`: what it is
  std::vector<Value> items;
};

// The shortest text that reads back as the same number, with a point or an exponent.
std::string number_text(double number);
// As in a message: 3, "x", a list of 3, a table.
std::string describe(const Value& value);

struct Entry {
  std::string section, key;  // a key outside any section has an empty section; a section that is no
                             // table has an empty key
  Value value;
  Place section_place, key_place, value_place;
};

struct Document {
  std::vector<Entry> entries;
  std::vector<Entry> sections;    // every section present, also empty ones (key empty)
  std::vector<Problem> problems;  // a syntax error; then entries are empty
};

// `file` names the places. Never throws on bad text.
Document read_toml(std::string_view text, const std::string& file);
// The value after `--set key=`: a TOML value, or else the text itself.
Value read_value(std::string_view text);

}  // namespace tessera::config
