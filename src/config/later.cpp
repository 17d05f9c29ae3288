#include "config/later.h"

#include <algorithm>
#include <iterator>

namespace tessera::config {
namespace {

// Capabilities that come with later versions: accepted at their neutral value, refused otherwise.
// To add one, delete its row.
struct LaterRow {
  std::string_view key;
  bool (*used)(const Config&);
  std::string_view reason;
  bool partly = false;  // some other values are there already
};
const LaterRow later[] = {
    {"optim.name", [](const Config& c) { return c.optim.name == "lars"; },
     "this build has adamw, sgd and lamb", true},
};

}  // namespace

std::vector<Later> later_in_use(const Config& config) {
  std::vector<Later> out;
  for (const LaterRow& row : later)
    if (row.used(config)) out.push_back({std::string(row.key), std::string(row.reason)});
  return out;
}

bool comes_later(std::string_view key) {
  return std::any_of(std::begin(later), std::end(later),
                     [&](const LaterRow& row) { return row.key == key && !row.partly; });
}

}  // namespace tessera::config
