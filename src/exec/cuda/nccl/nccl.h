// NCCL, opened when the first job of several cards needs it. Convention: only nccl.cpp and
// communicator.cpp see its header, so that everything else is the same in a build without it
// (no_nccl.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "comm/comm.h"

namespace tessera::exec::cuda {

// The files that are looked for, in order: TESSERA_NCCL_LIBRARY names another one, for tests.
std::vector<std::string> nccl_files();
// Why it cannot be used here, in a sentence; empty: it can. Nothing is started.
std::string nccl_missing();
std::string nccl_version();  // "2.28.9", or empty

// The name of a communicator before it is there, and its exchange over the ranks that talk already.
using NcclId = std::array<std::byte, 128>;
// Made by the first rank of the group for all of them. When that fails every rank throws
// Error(device) with the reason.
NcclId agree_on_id(comm::Comm& group, const std::function<NcclId()>& make);
// One per ordered pair of ranks that has one: `sends` says to whom this rank does, and
// ids[from][to] comes back for the pairs of this rank; the others' are unspecified.
std::vector<std::vector<NcclId>> agree_on_pairs(comm::Comm& group, const std::vector<bool>& sends,
                                                const std::function<NcclId()>& make);

}  // namespace tessera::exec::cuda
