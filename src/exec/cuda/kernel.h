// A CUDA kernel is a host function of one Call that enqueues work on the call's stream.
// Conventions: tensors are dense and row-major in device memory; a call neither allocates nor
// synchronises nor copies to or from the host, because it is recorded once into a graph and
// replayed; whatever changes between steps is read from device memory. Results are the same bits in
// every run: sums have a fixed order, and no float is added by an atomic operation.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "exec/common/memo.h"
#include "exec/common/tensor.h"
#include "ir/op.h"

namespace tessera::plan {
struct PackedForm;  // plan/target.h
}

namespace tessera::exec::cuda {

class Blas;  // cuBLASLt (blas.h)
class Dnn;   // cuDNN (dnn.h)

// The limits of a card that a plan must know; the defaults are an H100's, for plans that are made
// where no card is.
struct Limits {
  int arch = 90;  // compute capability, 10 x major + minor
  int multiprocessors = 132;
  std::int64_t shared_per_block = 227 * 1024;
  bool dnn = true;  // cuDNN is there and not switched off

  bool operator==(const Limits&) const = default;
};

// The state that the calls of one executor share.
struct Context {
  Limits limits;
  Blas* blas = nullptr;  // never null on a card
  Dnn* dnn = nullptr;    // null: kernels of our own instead
  bool tf32 = false;     // f32 products may be made of TF32 factors
  // A library may add in an order that differs from run to run; kernels of our own never do.
  bool any_order = false;
};

struct Call {
  ir::Op op;
  const ir::Attrs& attrs;
  // Result i may share the storage of operand j only where the op's row says may_alias, or
  // some_alias and overwrites().
  std::span<const Tensor> in, out;
  cudaStream_t stream = nullptr;
  std::byte* workspace = nullptr;  // as many bytes as the rule asked for, 256-byte aligned
  std::int64_t workspace_bytes = 0;
  // The operand that the row's rule packs, as its `pack` wrote it; null: the kernel reads it as it
  // is. `pack` itself writes it.
  std::byte* packed = nullptr;
  Context& context;
  Memo* memo = nullptr;  // of this step; null: it is called once

  // make(), or what it gave when this step was first called; a kernel keeps one thing.
  template <class T, class Make>
  const T& once(const Make& make) const {
    return (memo ? *memo : unkept).template get<T>(make);
  }
  mutable Memo unkept{};

  template <class A>
  const A& attr() const {
    return std::get<A>(attrs);
  }
  template <class T>
  T* scratch(std::int64_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(workspace + offset_bytes);
  }
};

using Kernel = void (*)(const Call&);
// Bytes of workspace for these operands; a pure function, so that a plan can be explained where no
// card is.
using WorkspaceRule = std::int64_t (*)(const ir::Attrs&, std::span<const ir::Type> in,
                                       std::span<const ir::Type> out, const Limits&);

// The form in which the kernel would rather have an operand that stays as it is, made once
// (plan/target.h).
using PackedFormRule = plan::PackedForm (*)(const ir::Attrs&, std::span<const ir::Type> in,
                                            int operand, const Limits&);

struct KernelRow {
  ir::Op op;
  Kernel run = nullptr;               // null: crosses ranks, which the executor does itself
  WorkspaceRule workspace = nullptr;  // null: none
  PackedFormRule packed = nullptr;
  Kernel pack = nullptr;  // fills Call::packed
};
const KernelRow& kernel(ir::Op op);         // table.cpp
bool supports(ir::Op op, ir::DType dtype);  // whether its kernels take elements of this type
// Whether its kernel takes a pair of the op's some_alias in one place (plan/target.h).
bool overwrites(ir::Op op, const ir::Attrs& attrs, std::span<const ir::Type> in);
// Whether attention of heads like q has a fast kernel that cuts windows (attention/attention.cpp).
bool cuts_windows(const ir::Attention& attrs, const ir::Type& q, const Limits& limits);

// Declared once for every op: the kernel, its workspace rule and what it packs. A family defines
// those that table.cpp names.
#define X(op, attrs)                                                                              \
  void run_##op(const Call& call);                                                                \
  std::int64_t workspace_##op(const ir::Attrs& attrs, std::span<const ir::Type> in,               \
                              std::span<const ir::Type> out, const Limits& limits);               \
  plan::PackedForm packed_##op(const ir::Attrs& attrs, std::span<const ir::Type> in, int operand, \
                               const Limits& limits);                                             \
  void pack_##op(const Call& call);
TESSERA_OPS(X)
#undef X

// Whether 16 bytes from here can be read or written at once.
inline bool aligned_16(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

// Throws Error(device) that says what failed and where; for every runtime call and launch.
void must(cudaError_t status, const char* what);
// After a launch: what it was refused for. What fails later is found by whoever waits.
void launched(const char* kernel);

}  // namespace tessera::exec::cuda
