#include "comm/mpi_session.h"

#include <algorithm>
#include <cstdlib>

#include "base/check.h"
#include "comm/keep_signals.h"
#include "comm/reduce.h"

namespace tessera::comm {
namespace {

template <ir::DType dtype, Reduction how>
void combine(void* in, void* inout, int* elements, MPI_Datatype*) {
  std::byte* const to = static_cast<std::byte*>(inout);
  const std::byte* const from[] = {static_cast<const std::byte*>(in), to};
  reduce(dtype, how, from, {&to, 1}, *elements);
}

void create_op(MPI_User_function* function, MPI_Op& op) {
  mpi_check(MPI_Op_create(function, 1, &op), "MPI_Op_create");
}

}  // namespace

bool mpi_failing = false;

void mpi_check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(code, text, &length);
  mpi_failing = true;
  throw Error(ErrorKind::rank_lost, std::string(call) + ": " + text, "MPI",
              "the output of the rank that stopped first says why");
}

MPI_Datatype mpi_type(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::f64:
      return MPI_DOUBLE;
    case ir::DType::f32:
      return MPI_FLOAT;
    case ir::DType::bf16:
    case ir::DType::f16:
      return MPI_UINT16_T;
    case ir::DType::i64:
      return MPI_INT64_T;
    case ir::DType::i32:
      return MPI_INT32_T;
    case ir::DType::f8e4m3:
    case ir::DType::f8e5m2:
    case ir::DType::i8:
    case ir::DType::u8:
      return MPI_UINT8_T;
  }
  return MPI_DATATYPE_NULL;
}

MpiSession::MpiSession() {
  const KeepSignals keep;
  ::setenv("OMPI_MCA_opal_signal", "",
           0);  // Open MPI: nor meanwhile, where its stack of a half-made process would crash
  int provided = 0;
  mpi_check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  CHECK(provided >= MPI_THREAD_FUNNELED, "MPI supports no threads at all");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  create_op(combine<ir::DType::bf16, Reduction::sum>, bf16_[0]);
  create_op(combine<ir::DType::bf16, Reduction::max>, bf16_[1]);
  create_op(combine<ir::DType::bf16, Reduction::min>, bf16_[2]);
  create_op(combine<ir::DType::f16, Reduction::sum>, f16_[0]);
  create_op(combine<ir::DType::f16, Reduction::max>, f16_[1]);
  create_op(combine<ir::DType::f16, Reduction::min>, f16_[2]);
  create_op(combine<ir::DType::f32, Reduction::max>, f32_[1]);
  create_op(combine<ir::DType::f32, Reduction::min>, f32_[2]);
  create_op(combine<ir::DType::f64, Reduction::max>, f64_[1]);
  create_op(combine<ir::DType::f64, Reduction::min>, f64_[2]);
  f32_[0] = f64_[0] = MPI_SUM;
  int found = 0;
  int* limit = nullptr;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&limit), &found);
  if (found) tag_limit = *limit;
  if (const char* text = std::getenv("TESSERA_MPI_CHUNK"))
    most_bytes = std::clamp<std::int64_t>(std::strtoll(text, nullptr, 10), 8, most_bytes) / 8 *
                 8;  // whole elements
}

MpiSession::~MpiSession() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!mpi_failing && !finalized) MPI_Finalize();
}

MPI_Op MpiSession::op(ir::DType dtype, Reduction how) const {
  const auto i = static_cast<std::size_t>(how);
  if (dtype == ir::DType::bf16) return bf16_[i];
  if (dtype == ir::DType::f16) return f16_[i];
  if (dtype == ir::DType::f32) return f32_[i];
  if (dtype == ir::DType::f64) return f64_[i];
  return how == Reduction::sum ? MPI_SUM : how == Reduction::max ? MPI_MAX : MPI_MIN;
}

MpiSession& mpi_session() {
  static MpiSession once;
  return once;
}

}  // namespace tessera::comm
