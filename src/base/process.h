// Facts about processes and this machine's name, and how mpirun is found and told what containers
// need.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

struct ProcessStat {
  char state = 0;  // R, S, D, T, Z, ...; 0: there is no such process
  int parent = 0, session = 0;
  std::uint64_t started =
      0;  // in ticks since the machine did: a pid that was used again is another process
};
ProcessStat stat_of(int pid);
std::vector<int> all_processes();
bool is_own(int pid);  // whether it runs as this process's user
// A variable of the environment that the process was started with; "": it has none, or this process
// may not know.
std::string variable_of(int pid, const std::string& name);

std::string host_name();
std::string boot_id();  // another one after every start of the machine; "": it does not say

std::string find_mpirun();  // in PATH, of the MPI of this build; empty: there is none
// mpirun refuses root and more ranks than cores unless it is told; in a container both are normal.
// All by environment, which other launchers ignore. `crowded`: more ranks than cores. Its own
// remarks are switched off, too: who calls this says how it ended.
void prepare_for_mpirun(bool crowded);
// Whether whoever started this process has told mpirun, by its environment, to start more ranks
// than cores. To be asked before prepare_for_mpirun().
bool mpirun_may_oversubscribe();
// The environment of one child with the same in it, each "NAME=VALUE"; this process's own stays as
// it is. Here mpirun's remarks stay: they are all that tells why it started nothing.
std::vector<std::string> environment_for_mpirun(bool crowded);

}  // namespace tessera
