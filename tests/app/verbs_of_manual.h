// The verbs of the binary, as its manual lists them: what a test of every verb goes through.
#pragma once

#include <cctype>
#include <sstream>
#include <string>
#include <vector>

#include "app/binary.h"

namespace tessera::test {

// "train", "bench ops", ...: from lines like "### `tessera bench ops [CONFIG]`".
inline std::vector<std::string> manual_verbs() {
  const std::string begin = "### `tessera ";
  std::istringstream manual(run("help --markdown").out);
  std::vector<std::string> verbs;
  for (std::string line; std::getline(manual, line);) {
    if (!line.starts_with(begin)) continue;
    std::istringstream words(line.substr(begin.size()));
    std::string verb;
    for (std::string word; words >> word && std::islower(static_cast<unsigned char>(word[0]));)
      verb += (verb.empty() ? "" : " ") + word.substr(0, word.find('`'));
    verbs.push_back(verb);
  }
  return verbs;
}

}  // namespace tessera::test
