// Which cores each rank of a machine keeps to (run.place). Convention: ranks are placed only where
// nobody has placed them: all ranks of the machine may use the same cores, as many as there are
// ranks at least. What they may use is shared out along the machine's NUMA nodes, as sysfs tells
// them, so that a rank's memory lies beside its cores.
#pragma once

#include <string>
#include <vector>

#include "base/cpus.h"
#include "comm/comm.h"

namespace tessera::run {

// The CPUs of each of `ranks` ranks; empty: they are not placed. Whole NUMA nodes where there are
// as many nodes as ranks or more, else the node's cores: those of the whole node for each of its
// ranks, or, with `apart`, as many cores of its own for each.
std::vector<std::vector<int>> share_out(const std::vector<Cpu>& cpus, int ranks, bool apart);

std::string cpu_list(const std::vector<int>& cpus);  // "0-3,8"

// All ranks call it. `how`: "auto" places where there are several NUMA nodes, "cores" each rank on
// cores of its own, "none" nobody. What became of the ranks of the first one's machine: "cores:
// rank 0 on 0-3, rank 1 on 4-7", or "cores: not placed" and why.
std::string place_ranks(const std::string& how, comm::Comm& world);
// The answer of place_ranks(); "": there is one rank, or ranks are threads.
const std::string& placement_here();

}  // namespace tessera::run
