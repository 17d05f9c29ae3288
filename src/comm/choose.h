// Which algorithm ranks talk by (the key parallel.all_reduce), chosen once for a world and all
// groups split from it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "comm/comm.h"
#include "comm/hierarchical.h"
#include "comm/node.h"

namespace tessera::comm {

// automatic: shared within a machine, hierarchical across. shared: within a machine; the base
// across. ring: always; mpi: the base itself.
enum class Algorithm : std::uint8_t { automatic, shared, ring, hierarchical, mpi };
Algorithm algorithm_named(std::string_view word);  // auto | shared | ring | hierarchical | mpi

struct Choice {
  Algorithm algorithm = Algorithm::automatic;
  std::string machine = machine_name();  // ranks that say the same share memory
  HierarchicalOptions across{};          // and of a ring over all ranks
};

// All ranks of `base` call it. Where memory cannot be shared the base is what remains; describe()
// says so.
std::unique_ptr<Comm> choose(std::unique_ptr<Comm> base, const Choice& choice);

}  // namespace tessera::comm
