// Sums over ranks of several machines: within each machine in shared memory, then between machines,
// then within each machine again. So each byte crosses the network once per machine instead of once
// per rank. Conventions: where every machine has as many ranks, rank i of each adds up slice i with
// rank i of the others, all at once; otherwise the first rank of each machine does it for all.
// Where large sums travel rounded, a reduce_scatter is a ring over all ranks, which crosses the
// network once per machine where neighbours in rank are neighbours. Other verbs are left to the
// base.
#pragma once

#include <memory>

#include "comm/comm.h"
#include "comm/progress.h"
#include "comm/ring.h"
#include "comm/wrapped.h"

namespace tessera::comm {

struct HierarchicalOptions {
  std::int64_t ring_from = 8 << 10;  // bytes per machine; less goes by the base's own all_reduce,
                                     // which has fewer messages to wait for
  RingOptions ring{};
};

// All ranks of `base` call it. machine: the same number on the same machine. wrap: what groups get,
// those on one machine (which must be reached) and those that split() makes.
std::unique_ptr<Comm> make_hierarchical(std::unique_ptr<Comm> base, SharedEngine engine,
                                        int machine, Wrap wrap, HierarchicalOptions options);

}  // namespace tessera::comm
