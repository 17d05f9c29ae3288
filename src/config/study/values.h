// Readers of the values of a study's file: each makes a function that takes one value of the file,
// or notes a problem at its place and changes nothing. Convention: problems are collected, nothing
// throws.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/problem.h"
#include "config/tree.h"

namespace tessera::config {

// The name among `names` that `word` is nearly; empty when none is near.
std::string near_name(std::string_view word, const std::vector<std::string>& names);

class StudyValues {
 protected:
  // `folder`: relative paths start there.
  explicit StudyValues(std::filesystem::path folder) : folder_(std::move(folder)) {}

  using Keys = std::vector<std::pair<std::string, std::function<void(const Node&)>>>;

  void problem(const Place& place, std::string message, std::string advice = "");
  // Calls what belongs to each key of the table; one that nothing belongs to gets the nearest name.
  void keys_of(const Node& table, const std::string& where, const Keys& keys);

  // Values of one kind each; a wrong one is a problem and changes nothing.
  std::function<void(const Node&)> text(std::string& to, bool may_be_empty = false);
  std::function<void(const Node&)> word(std::string& to, const std::vector<std::string>& choices);
  std::function<void(const Node&)> count(std::int64_t& to, std::int64_t least, std::int64_t most);
  std::function<void(const Node&)> seconds(double& to);
  std::function<void(const Node&)> flag(bool& to);
  std::function<void(const Node&)> words(std::vector<std::string>& to);
  // A name that becomes a folder, or stands for a publication.
  std::function<void(const Node&)> folder_name(std::string& to);
  // A path, from where the command runs.
  std::function<void(const Node&)> path(std::string& to);

  // "[[part]]": calls `read` for every table.
  std::function<void(const Node&)> tables(std::size_t most,
                                          const std::function<void(const Node&)>& read);
  std::function<void(const Node&)> table(const std::function<void(const Node&)>& read);

  std::filesystem::path folder_;
  std::vector<Problem> problems_;
};

}  // namespace tessera::config
