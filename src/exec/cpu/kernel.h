// A CPU kernel is a function of one Call. Reference kernels are plain loops templated on the
// element type; fast ones compute in f32. Conventions: tensors are dense and row-major; all
// floating operands of a call have the kernel's element type (the executor widens f16 around the
// call, and bf16 around kernels that do not read it themselves; cast is the exception); work is cut
// into tasks in such a way that results do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <string>

#include "base/index.h"
#include "base/threads.h"
#include "comm/comm.h"
#include "exec/common/memo.h"
#include "exec/common/tensor.h"
#include "exec/device.h"
#include "ir/op.h"
#include "plan/target.h"

namespace tessera::exec::cpu {

using exec::Tensor;

// Whether the threads share out the work of such a call; else one of them does it.
bool shared_out(Threading threading, ir::Op op, const ir::Attrs& attrs,
                std::span<const ir::Type> in);  // threading.cpp

// Bytes of scratch: `shared` once, for what threads hand to each other, and `per_thread` for each
// of them.
struct Scratch {
  std::size_t shared = 0, per_thread = 0;

  Scratch aligned() const { return {(shared + 63) / 64 * 64, (per_thread + 63) / 64 * 64}; }
};

struct Call {
  ir::Op op;
  const ir::Attrs& attrs;
  // Result i may share the storage of operand j only where the op's row says may_alias, or
  // some_alias and overwrites() says so, too.
  std::span<const Tensor> in, out;
  ThreadPool& pool;
  Scratch scratch;                 // at least what the rule asked for, aligned()
  std::byte* shared = nullptr;     // scratch.shared bytes, 64-byte aligned
  std::byte* own = nullptr;        // 64-byte aligned: thread i owns [i * scratch.per_thread, ...)
  const Groups* groups = nullptr;  // of collectives
  Memo* memo = nullptr;            // of this step; null: it is called once
  // The operand that the row's rule packs, as its `pack` wrote it; null: the kernel reads it as it
  // is. `pack` itself writes it.
  std::byte* packed = nullptr;
  std::int64_t packed_bytes = 0;  // they tell its form where a rule has several
  Threading threading = Threading::automatic;
  bool winograd = true;  // Liberties::winograd

  // body(task, thread) for every task. By rows a thread takes `row` tasks that follow each other,
  // which are whole rows of the result, and by heads `head` of them.
  template <class Body>
  void share_out(std::int64_t tasks, std::int64_t row, std::int64_t head, const Body& body) const {
    const std::int64_t asked = threading == Threading::rows    ? row
                               : threading == Threading::heads ? head
                                                               : 1,
                       together = std::max<std::int64_t>(1, asked);  // there may be no head here
    pool.parallel_for(ceil_div(tasks, together), [&](std::int64_t run, int thread) {
      for (std::int64_t i = run * together, end = std::min(tasks, i + together); i < end; ++i)
        body(i, thread);
    });
  }

  // make(), or what it gave when this step first ran; a kernel keeps one thing.
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
  T* shared_scratch() const {
    return reinterpret_cast<T*>(shared);
  }
  template <class T>
  T* scratch_of(int thread) const {
    return reinterpret_cast<T*>(own + static_cast<std::size_t>(thread) * scratch.per_thread);
  }
};

// Where element `local` of this rank's part of a sample stands in the whole sample (x: the shape of
// the part, samples first).
inline std::int64_t in_whole_sample(const ir::Dropout& attr, const ir::Shape& x,
                                    std::int64_t local) {
  if (attr.whole.empty()) return local;
  std::int64_t global = 0, step = 1;
  for (std::size_t i = attr.whole.size(); i-- > 0; step *= attr.whole[i]) {
    global += (attr.start[i] + local % x[i + 1]) * step;
    local /= x[i + 1];
  }
  return global;
}

// Hands a message over and comes back at once. Only for those that a plan puts on stream 1.
comm::Pending start_collective(const Call& call);

// The answer of the op alarm to a sum of squares.
inline double alarm_of(double squares) {
  return squares < 1e24 ? 0.0 : std::numeric_limits<double>::quiet_NaN();
}

using Kernel = void (*)(const Call&);
// Scratch for these operands; whoever calls the kernel rounds it up to whole lines.
using ScratchRule = Scratch (*)(const ir::Attrs&, std::span<const ir::Type> in,
                                std::span<const ir::Type> out);

// The form in which the kernel would rather have an operand that stays as it is, packed once
// (plan/target.h).
using PackedFormRule = plan::PackedForm (*)(const ir::Attrs&, std::span<const ir::Type> in,
                                            int operand, const Liberties&);

struct KernelRow {
  ir::Op op;
  Kernel f64 = nullptr;  // the readable reference, in double
  Kernel f32 = nullptr;  // the fast kernel, or the reference in float where speed does not matter
  ScratchRule scratch = nullptr;  // of the fast kernel; null: none
  PackedFormRule packed = nullptr;
  Kernel pack = nullptr;  // fills Call::packed
  bool low = false;       // the fast kernel reads and writes bf16 as it is, beside f32 (low.h)
};
const KernelRow& kernel(ir::Op op);         // table.cpp
bool supports(ir::Op op, ir::DType dtype);  // whether its kernels take elements of this type
// Whether the kernel reads an operand of some_alias before it writes the result over it.
bool overwrites(ir::Op op, std::span<const ir::Type> in);

// Declared once for every op: the reference, the fast kernel, its scratch rule and what it packs. A
// family defines those that table.cpp names.
#define X(op, attrs)                                                                              \
  template <class T>                                                                              \
  void reference_##op(const Call& call);                                                          \
  extern template void reference_##op<double>(const Call&);                                       \
  extern template void reference_##op<float>(const Call&);                                        \
  void fast_##op(const Call& call);                                                               \
  Scratch scratch_##op(const ir::Attrs& attrs, std::span<const ir::Type> in,                      \
                       std::span<const ir::Type> out);                                            \
  plan::PackedForm packed_##op(const ir::Attrs& attrs, std::span<const ir::Type> in, int operand, \
                               const Liberties& liberties);                                       \
  void pack_##op(const Call& call);
TESSERA_OPS(X)
#undef X

}  // namespace tessera::exec::cpu
