// What the preload library and the tests say to each other: which call is to fail (environment
// variables) and what was seen (a file that both map into memory). Convention: ranks are counted
// from 0; slot 0 of the record is of processes that are no rank of an MPI job.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::test::faults {

// TESSERA_FAULT = "CALL N TIMES ACTION VALUE SLOT": the N-th CALL (from 1) of a process with this
// slot
// (-1: of all) and TIMES - 1 more. Actions:
//   fail   the call fails with errno VALUE
//   slow   it is made VALUE milliseconds later
//   await  it is made once the file TESSERA_FAULT_AWAIT exists (after a minute in any case)
//   bus    pages of the mapping that it makes raise SIGBUS
//   die    SIGKILL after the call
// TESSERA_FAULT_UNDER: only paths below this folder. TESSERA_FAULT_ONLY: only paths that contain
// this text. TESSERA_FAULT_RECORD: the file that holds a Record.
inline constexpr const char *fault_variable = "TESSERA_FAULT",
                            *under_variable = "TESSERA_FAULT_UNDER",
                            *only_variable = "TESSERA_FAULT_ONLY",
                            *await_variable = "TESSERA_FAULT_AWAIT",
                            *record_variable = "TESSERA_FAULT_RECORD";

enum class Call {
  open,
  opendir,
  readdir,
  read,
  mmap,
  write,
  fsync,
  rename,
  close,
  stat,
  mkdir,
  truncate,
  unlink
};
inline constexpr std::array<std::string_view, 13> call_names = {
    "open",   "opendir", "readdir", "read",  "mmap",     "write", "fsync",
    "rename", "close",   "stat",    "mkdir", "truncate", "unlink"};
inline constexpr std::size_t call_count = call_names.size(), slot_count = 5;

struct Record {
  std::atomic<std::int64_t> seen[slot_count][call_count];
  std::atomic<std::int64_t> fired;
  char first[1024];  // the path of the first call that failed
};

}  // namespace tessera::test::faults
