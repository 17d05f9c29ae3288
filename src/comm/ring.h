// Collectives around a ring of messages: every rank sends to the next and receives from the one
// before, in chunks, so that a chunk travels on while the next one arrives. Each rank sends 2
// (n-1)/n of the bytes of an all_reduce, the least possible, whatever n. Conventions: sums begin at
// the rank behind the owner of a slice and go round, so their bits depend on n alone; bf16 is
// rounded at every rank. Where f32 is sent in half the bytes (parallel.wire), sums are still made
// in f32 and all ranks end with the same, rounded bits; small sums, which losses, norms and
// statistics are, always travel whole.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/comm.h"
#include "comm/progress.h"
#include "comm/wire.h"

namespace tessera::comm {

struct RingOptions {
  std::int64_t chunk = 256 << 10;     // bytes of a message before encoding; whole elements
  Wire wire = Wire::f32;              // of f32 sums
  std::int64_t wire_from = 64 << 10;  // bytes of such a sum; less travels as f32
};

// all_reduce, reduce_scatter and all_gather are rings; the rest is left to `base`. All ranks of
// `base` call it.
std::unique_ptr<Comm> make_ring(std::unique_ptr<Comm> base, SharedEngine engine,
                                RingOptions options);

}  // namespace tessera::comm
