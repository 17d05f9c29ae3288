// What the kernel says of a process, and what this machine is called.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

struct ProcessStat {
  char state = 0;  // R, S, D, T, Z, ...; 0: there is no such process
  int parent = 0;
  std::uint64_t started = 0;  // in ticks since the machine did: a pid that was used again is another process
};
ProcessStat stat_of(int pid);

std::string host_name();

}  // namespace tessera
