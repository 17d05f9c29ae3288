// The limit on the memory of a process (`ulimit -v`), which mpirun and the ranks inherit. Below
// least_memory MPI may fail in any of its parts while ranks join: it waits for itself, ends without
// a word, or crashes where one of its allocations failed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera::run {

inline constexpr std::uint64_t least_memory = std::uint64_t{1} << 30;

std::optional<std::uint64_t> memory_limit();  // in bytes; none: there is no limit
// Whether there is a limit below least_memory.
bool memory_is_short();
// Whether a program ends by this signal when it uses memory that it did not get.
bool follows_from_no_memory(int signal);
// "each process may have 83 MB", of a limit that is there.
std::string memory_limit_text();
// Advice for a limit that is too low.
extern const char* const memory_limit_help;

}  // namespace tessera::run
