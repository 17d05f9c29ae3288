// MPI from its start to its end, once per process: its types, our reductions and its errors. The
// one file that includes mpi.h.
#pragma once

#include <mpi.h>

#include <cstdint>

#include "comm/comm.h"

namespace tessera::comm {

// An error is under way in this process: MPI_Finalize would wait for ranks that never come.
extern bool mpi_failing;

// Error(rank_lost) in MPI's words unless `code` is MPI_SUCCESS.
void mpi_check(int code, const char* call);

MPI_Datatype mpi_type(ir::DType dtype);

struct MpiSession {
  std::int64_t most_bytes = 1 << 30;  // of one call
  int tag_limit = 32767;

  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  MPI_Op op(ir::DType dtype, Reduction how) const;

 private:
  // By Reduction; ours where MPI has none, or one that loses a NaN.
  MPI_Op bf16_[3], f16_[3], f32_[3], f64_[3];
};

MpiSession& mpi_session();

}  // namespace tessera::comm
