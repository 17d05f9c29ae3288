// A stand-in for NCCL in a build without its header.
#include "base/check.h"
#include "exec/cuda/nccl/communicator.h"

namespace tessera::exec::cuda {
namespace {

constexpr const char* sentence = "this build has no NCCL: nccl.h was not found";
[[noreturn]] void refuse() {
  throw Error(ErrorKind::device, sentence, "NCCL",
              "build where its header is (libnccl-dev), or --comm mpi stages messages through the "
              "host instead");
}

}  // namespace

struct Communicator::State {};

std::string nccl_missing() { return sentence; }
std::string nccl_version() { return ""; }
NcclId new_nccl_id() { refuse(); }
bool nccl_sums(ir::DType) { return false; }

Communicator::Communicator(const NcclId&, int ranks, int rank, int, Idle)
    : ranks_(ranks), rank_(rank) {
  refuse();
}
Communicator::~Communicator() = default;
void Communicator::all_reduce(const std::byte*, std::byte*, std::int64_t, ir::DType, cudaStream_t) {
  refuse();
}
void Communicator::all_gather(const std::byte*, std::byte*, comm::Counts, cudaStream_t) {
  refuse();
}
void Communicator::reduce_scatter(const std::byte*, std::byte*, comm::Counts, ir::DType,
                                  cudaStream_t) {
  refuse();
}
void Communicator::all_to_all(const std::byte*, comm::Counts, std::byte*, comm::Counts,
                              cudaStream_t) {
  refuse();
}
void Communicator::send(const std::byte*, std::int64_t, int, cudaStream_t) { refuse(); }
void Communicator::recv(std::byte*, std::int64_t, int, cudaStream_t) { refuse(); }
void Communicator::check() { refuse(); }
void Communicator::abort() {}
bool Communicator::aborted() const { return true; }
void Communicator::call(const char*, const std::function<int()>&) { refuse(); }
void Communicator::settled(const char*) { refuse(); }
void Communicator::finish() {}

}  // namespace tessera::exec::cuda
