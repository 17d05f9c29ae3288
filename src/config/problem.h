// Problems of a configuration, each with its place: they are collected, never thrown one by one,
// and shown all at once. Convention: ConfigError composes tessera::Error's own text, so that
// `"error: " + what()` is the whole message:
//
//   error: train.toml:14:15: parallel.tp = 5 does not divide model.heads = 12
//      14 | tp          = 5
//         |               ^ choose 1, 2, 3, 4, 6 or 12
//      also: --set optim.lr=-1: optim.lr = -1.0 is out of range; choose more than 0, at most 1000
//      help: `tessera config check train.toml` re-checks without running
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/printable.h"  // defines: utf8_length

namespace tessera::config {

// Where a value came from. With a line: a place in a file (origin is its name); without: "--set
// key=val", a flag, or "" (a default).
struct Place {
  std::string origin;
  std::int64_t line = 0, column = 0;
};

// Keys ("model.depth") that the user gave, each with the place of the value that won.
using Given = std::map<std::string, Place, std::less<>>;

struct Problem {
  Place place;
  std::string message;  // what was expected and found
  std::string advice;   // what to write instead; may be empty
};

// A problem before it has a place: it stands at the first of `keys` that was given, unless it is
// about the whole; nothing is said when one of them was already refused.
struct Finding {
  std::vector<std::string> keys;
  std::string message, advice;
  bool whole = false;
};

using Texts = std::map<std::string, std::string_view>;

struct ConfigError : Error {
  std::vector<Problem>
      problems;  // in the order shown: by line, then the command line, then the rest
  // `texts`: the files that places with a line point into, by name; exit code 2.
  ConfigError(std::vector<Problem> problems, const Texts& texts, std::string help);
};

// "ds.json:4:3: message; advice" on one line.
std::string in_one_line(const Problem& problem);

// Text from outside made fit for a message: control characters and bad UTF-8 become '?', long text
// is cut.
std::string clean(std::string_view text, std::size_t most = 80);
// a, b or c.
std::string alternatives(const std::vector<std::string>& words);
// "a|b|c" as words.
std::vector<std::string> split(std::string_view text, char separator);
using tessera::utf8_length;
bool is_utf8(std::string_view text);

}  // namespace tessera::config
