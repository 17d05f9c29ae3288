// The JSON header of a safetensors file, read event by event into plain entries (no JSON tree is
// built). Convention: what is wrong with one entry is noted and reading goes on; what makes the
// rest unreadable is noted and ends it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "files/safetensors.h"

namespace tessera::files {

// Problems of one file, in the order found; only the first few are kept in full.
class Problems {
 public:
  explicit Problems(std::string_view file) : file_(file) {}
  // `tensor` may be empty: then the problem is the file's.
  void note(std::string_view tensor, std::string problem);
  bool any() const { return count_ > 0; }
  [[noreturn]] void raise() const;

 private:
  std::string file_;
  struct Line {
    std::string where, problem;
  };
  std::vector<Line> lines_;
  std::size_t count_ = 0;
};

// "'name'" fit for one line of a terminal: control characters escaped, long names cut.
std::string in_quotes(std::string_view name);

struct HeaderEntry {
  std::string name, dtype;
  std::vector<std::uint64_t> shape, offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;
  bool sound = true;  // false: a problem was already noted for it
};

struct Header {
  std::vector<HeaderEntry> entries;
  Metadata metadata;
  bool complete = false;  // false: reading ended early, and the last entry may be half read
};

Header read_header(std::string_view json, Problems& problems);

}  // namespace tessera::files
