// The CPUs that a thread may run on, the NUMA nodes they belong to, as sysfs tells them, and memory
// that lies on several nodes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tessera {

struct Cpu {
  int number = 0;          // as the kernel counts them
  int node = 0, core = 0;  // hyperthreads of one core have the same
};
std::vector<Cpu> own_cpus();   // that this thread may use, by node, core and number
std::vector<int> own_nodes();  // of these CPUs, each once
bool has_several_nodes();      // whether the machine does; quick

// Pages of whole pages of memory that are touched later come from these nodes in turns. False: the
// system does not do that, as in many containers, and memory is where it is touched first.
bool interleave(std::byte* at, std::size_t bytes, std::span<const int> nodes);

}  // namespace tessera
