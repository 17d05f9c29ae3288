// Algorithms that an executor took from libraries, kept so that another run takes the same: a table
// from what was asked for to what was taken. Convention: keys and algorithms are text of the
// executor's own that no one else reads; a table holds for the card and the libraries that it was
// made with, and for no others.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::exec {

struct Choice {
  std::string algorithm;       // empty: nothing of a library serves, a kernel of our own does
  std::int64_t workspace = 0;  // bytes that it takes

  bool operator==(const Choice&) const = default;
};

class Choices {
 public:
  using Facts = std::vector<std::pair<std::string, std::string>>;  // names and values
  using Rows = std::map<std::string, Choice, std::less<>>;

  Choices() = default;
  // `beside`: what is worth knowing but changes no choice (a driver).
  explicit Choices(Facts made_with, Facts beside = {})
      : made_with_(std::move(made_with)), beside_(std::move(beside)) {}

  const Facts& made_with() const { return made_with_; }
  const Facts& beside() const { return beside_; }
  const Rows& rows() const { return rows_; }
  const Choice* find(std::string_view key) const {
    const auto found = rows_.find(key);
    return found == rows_.end() ? nullptr : &found->second;
  }
  // In the place of what stood under this key.
  void add(const std::string& key, Choice choice) { rows_[key] = std::move(choice); }
  void take(Rows rows) { rows_ = std::move(rows); }

  // A row that the library does not take any more: it is chosen anew, and whoever runs is told.
  void refuse(std::string_view key) {
    rows_.erase(rows_.find(key));
    ++refused_;
  }
  std::int64_t refused() const { return refused_; }

 private:
  Facts made_with_, beside_;
  Rows rows_;
  std::int64_t refused_ = 0;
};

}  // namespace tessera::exec
