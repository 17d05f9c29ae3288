// The operations of a communicator do this with bytes of the host, once they are there.
#pragma once

#include <nccl.h>

#include <vector>

#include "nccl/exchange.h"

namespace tessera::test {

enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast, reduce, send, recv };

struct NcclOp {
  Kind kind = Kind::send;
  const void* from = nullptr;  // of the card
  void* to = nullptr;
  std::size_t bytes = 0;  // of the count that was given
  ncclDataType_t type = ncclUint8;
  int peer = 0;                                  // or the root
  std::byte *staged = nullptr, *made = nullptr;  // on the host
};

std::size_t size_of(ncclDataType_t type);  // 0: no type that is known here
// Bytes that this rank gives and gets.
std::size_t bytes_in(const NcclOp& op, int ranks, int rank);
std::size_t bytes_out(const NcclOp& op, int ranks, int rank);
// The operations of one group, from `staged` to `made`; messages between two ranks all at once.
// False: as Exchange::run.
bool carry_out(std::vector<NcclOp>& ops, Exchange& exchange, int ranks, int rank);

}  // namespace tessera::test
