// A TOML document as a tree, for files that are no configuration of one run: tables in tables,
// lists of tables, every node with its place. Convention: children of a table are in the order of
// the file; toml++ stays in toml_text.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/value.h"

namespace tessera::config {

struct Node {
  std::string key;             // of an item of a list: ""
  Place key_place, place;      // of the value, for a table that of its key
  Value value;                 // of a table: kind table
  std::vector<Node> children;  // of a table, or of a list that holds tables
  bool is_table() const { return value.kind == Value::Kind::table; }
  // A list of tables and nothing else ([[part]]).
  bool is_tables() const;
};

struct Tree {
  Node root;                      // a table
  std::vector<Problem> problems;  // a syntax error; then the root is empty
};
Tree read_toml_tree(std::string_view text, const std::string& file);

// The value as `--set KEY=VALUE` takes it; a list or text that needs quotes has them.
std::string set_text(const Value& value);

}  // namespace tessera::config
