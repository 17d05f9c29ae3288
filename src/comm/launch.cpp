// The rank and the number of ranks of this process, which mpirun, srun and their like leave in the
// environment. Convention: read before MPI is initialised and without it, so a build without
// MPI can say that it was launched in vain.
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "comm/comm.h"

namespace tessera::comm {

namespace {

// -1 when unset or not a number.
int number(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text) return -1;
  int value = -1;
  const char* end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, value);
  return error == std::errc{} && rest == end ? value : -1;
}

struct Launcher {
  const char *rank, *size;
  const char* sign;  // must be set as well
};
constexpr Launcher launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr},  // Open MPI's mpirun
    {"PMI_RANK", "PMI_SIZE", nullptr},  // MPICH's and Intel's mpiexec, srun --mpi=pmi2
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", nullptr},  // MVAPICH2
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", nullptr},  // srun --mpi=pmix; PMIx itself leaves no size
    {"PMIX_RANK", "SLURM_NTASKS", "SLURM_STEP_ID"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
     "SLURM_STEP_ID"},  // srun; a batch script without srun is one task of no step
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"},
};

}  // namespace

Launch mpi_launch() {
  for (const Launcher& launcher : launchers) {
    if (launcher.sign && number(launcher.sign) < 0) continue;
    const int rank = number(launcher.rank), size = number(launcher.size);
    if (rank >= 0 && size >= 1)
      return rank < size ? Launch{rank, size} : Launch{};  // the first that speaks decides
  }
  return {};
}

}  // namespace tessera::comm
