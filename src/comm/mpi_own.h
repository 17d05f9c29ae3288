// MPI's own blocking collectives over its world, as any MPI program would call them: what ours are
// measured against (bench comm).
#pragma once

#include <string>

#include "comm/comm.h"

namespace tessera::comm {

// f32, summed where it is a sum; `in` and `out` as for the verb of a Comm with equal counts.
// Error(usage) in a build without MPI.
void mpi_own(Verb verb, ConstBytes in, Bytes out);

// Name and version of the MPI library: "Open MPI v4.1.4"; "": this build has none. It may be asked
// before MPI is initialised.
std::string mpi_version();

}  // namespace tessera::comm
