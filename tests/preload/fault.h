// This header has what a test and the library that stands before the C library in the binary under
// test (LD_PRELOAD) say to each other: which call is to fail (environment variables), and what was
// seen (a file that both map into memory). Convention: ranks are counted from 0; slot 0 of the
// record is of processes that are no rank of an MPI job.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::test::faults {

// TESSERA_FAULT = "CALL WHERE [from=N] [times=N] [rank=R] ACTION": of the calls to CALL on paths
// that contain WHERE ("/ckpt$": that end in it; "/": all), in rank R of an MPI job alone, the N-th
// from 1 and `times` in all (without: all after it). Actions:
//   errno=NUMBER   the call fails
//   slow=SECONDS   it is made so much later
//   await=FILE     it is made once the file exists (after a minute in any case)
//   die            SIGKILL after the call
// `thread` is the creation of a thread, anywhere; `memory` an allocation of the thread of the name
// WHERE, with `back` only until that thread gives a MiB or more back to the system.
// TESSERA_FAULT_UNDER: only paths below this folder. TESSERA_FAULT_RECORD: the file with a Record.
// TESSERA_FAULT_ABORT: MPI_Abort never comes back and ends nothing.
inline constexpr const char *fault_variable = "TESSERA_FAULT",
                            *under_variable = "TESSERA_FAULT_UNDER",
                            *record_variable = "TESSERA_FAULT_RECORD",
                            *abort_variable = "TESSERA_FAULT_ABORT";

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
  unlink,
  thread,
  memory
};
inline constexpr std::array<std::string_view, 15> call_names = {
    "open",  "opendir", "readdir", "read",     "mmap",   "write",  "fsync", "rename",
    "close", "stat",    "mkdir",   "truncate", "unlink", "thread", "memory"};
inline constexpr std::size_t call_count = call_names.size(), slot_count = 5;

struct Record {
  std::atomic<std::int64_t> seen[slot_count][call_count];
  std::atomic<std::int64_t> fired;
  char first[1024];  // the path of the first call that failed
};

// Where a test program has the library's calls linked in: looks at the variables again.
void read_order();

}  // namespace tessera::test::faults
