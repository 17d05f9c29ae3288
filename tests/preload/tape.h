// The tape on which the recording library (tape.cpp) writes every call that changes a file or a
// folder below one place, in the order in which the calls were made, for a test that plays them
// again. Convention: one Entry, then the bytes of both paths, then those of the data.
#pragma once

#include <cstdint>

namespace tessera::test::faults {

// TESSERA_TAPE: the file that is appended to. TESSERA_TAPE_UNDER: only paths below this folder.
inline constexpr const char *tape_variable = "TESSERA_TAPE",
                            *tape_under_variable = "TESSERA_TAPE_UNDER";

enum class Change : std::uint32_t {
  create,    // an empty file
  mkdir,     // an empty folder
  write,     // data at an offset
  resize,    // the file has `offset` bytes from now on
  sync,      // a file's bytes, or a folder's names, are on the disk
  rename,    // path to other
  exchange,  // of two names
  unlink     // a file or an empty folder
};

struct Entry {
  Change change = Change::create;
  std::uint32_t path = 0, other = 0;  // bytes of the names
  std::uint64_t offset = 0, data = 0;
};

}  // namespace tessera::test::faults
