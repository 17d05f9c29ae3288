// MPI in a build without it: says so. The twin of mpi.cpp; CMake builds one of the two.
// Convention: the launcher's environment is read here too (launch.cpp), so that mpirun on such a
// build gives an error, not N runs of one rank.
#include "base/check.h"
#include "comm/comm.h"
#include "comm/mpi_own.h"

namespace tessera::comm {

namespace {

[[noreturn]] void missing() {
  throw Error(ErrorKind::usage, "this build has no MPI", "comm",
              "install it (./setup, or the packages libopenmpi-dev and openmpi-bin), then "
              "configure and build again; or use comm = \"local\"");
}

}  // namespace

bool mpi_built() { return false; }
std::unique_ptr<Comm> make_mpi() { missing(); }
std::string mpi_version() { return {}; }
void mpi_own(Verb, ConstBytes, Bytes) { missing(); }

}  // namespace tessera::comm
