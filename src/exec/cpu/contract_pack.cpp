// Factors of a product that are packed once: weights when they are loaded, and others at the
// beginning of a call, by all threads.
#include <algorithm>

#include "base/index.h"
#include "exec/cpu/contract_parts.h"
#include "exec/cpu/gemm/gemm.h"

namespace tessera::exec::cpu {

using std::int64_t;

namespace {

constexpr int64_t most_bytes = int64_t{64} << 20;
// A task packs so many numbers, and rows of k by so many.
constexpr int64_t numbers = 16384, whole = 2 * low_group;

// A task packs a panel with all of k; where columns lie side by side, some rows of all panels, so
// that memory is read as it lies.
template <class T>
void pack_matrices(const Call& call, const Lowering& l, const Tensor& b, T* to) {
  const PackedMatrices matrices(l);
  const bool beside = l.n.b == 1;
  const int64_t columns = beside ? matrices.n : panel_columns,
                rows = beside ? ceil_div(ceil_div(numbers, columns), whole) * whole
                              : std::max<int64_t>(1, matrices.k),
                panels = ceil_div(matrices.n, columns), parts = panels * ceil_div(matrices.k, rows);
  std::vector<Run> outer;
  for (const Run& run : l.outer)
    if (run.b != 0) outer.push_back(run);
  call.pool.parallel_for(matrices.count * l.outer_k_steps() * parts, [&](int64_t task, int) {
    const int64_t matrix = task / parts, part = task % parts, n0 = part % panels * columns;
    const int64_t from = offsets(outer, matrix / l.outer_k_steps()).b +
                         offsets(l.outer_k, matrix % l.outer_k_steps()).b;
    gemm_pack_b<T>(matrices.k, n0, std::min(columns, matrices.n - n0), b.as<T>() + from, l.k.b,
                   l.n.b, to + matrix * matrices.elements<T>(), {part / panels * rows, rows});
  });
}

}  // namespace

int64_t packed_bytes(const Lowering& l) {
  const PackedMatrices matrices(l);
  return l.low ? matrices.bytes<Low>(l) : matrices.bytes<float>(l);
}
bool packs_first(const Lowering& l) {
  return can_pack(l) && l.m_tiles() > 1 && packed_bytes(l) <= most_bytes;
}

void pack_either(const Call& call, const Lowering& l, const Tensor& b, std::byte* to) {
  if (l.low)
    pack_matrices<Low>(call, l, b, reinterpret_cast<Low*>(to));
  else
    pack_matrices<float>(call, l, b, reinterpret_cast<float*>(to));
}

bool packs_rows_first(const Lowering& l) {
  const bool apart = l.k.a != 1 && l.m.a == 1 && l.outer_steps() == 1 && l.outer_k_steps() == 1;
  constexpr int64_t of_a_task = 6 * panel_columns;  // columns; further tasks would pack again
  return !l.low && !micro_f32().packs_rows() && apart && packs_first(l) && l.n.extent > of_a_task &&
         packed_a_elements(l.m.extent, l.k.extent) * int64_t{sizeof(float)} <= most_bytes;
}
const float* pack_rows_first(const Call& call, const Lowering& l, const Tensor& a, std::byte* to) {
  const int64_t m = l.m.extent, k = l.k.extent,
                rows = ceil_div(ceil_div(numbers, m), whole) * whole;
  auto* const packed = reinterpret_cast<float*>(to);
  call.pool.parallel_for(ceil_div(k, rows), [&](int64_t task, int) {
    gemm_pack_a(m, k, a.as<float>(), l.m.a, l.k.a, packed, {task * rows, rows});
  });
  return packed;
}

plan::PackedForm packed_contract(const ir::Attrs& attrs, std::span<const ir::Type> in, int operand,
                                 const Liberties&) {
  if (in[0].dtype == ir::DType::i8) return packed_contract_i8(attrs, in, operand);
  const bool low = in[0].dtype == ir::DType::bf16;
  if (!low && in[0].dtype != ir::DType::f32) return {};
  const Lowering l = lowering_for(attrs, in);
  if (operand != (l.swapped ? 0 : 1) || !can_pack(l)) return {};
  const PackedMatrices matrices(l);
  const auto run = [](const Run& r) {
    return std::to_string(r.extent) + "*" + std::to_string(r.b) + " ";
  };
  std::string layout = (low ? "bf16 " : "") + run(l.k) + run(l.n);
  for (const Run& r : l.outer)
    if (r.b != 0) layout += run(r);
  for (const Run& r : l.outer_k) layout += run(r);
  layout.pop_back();
  return {low ? matrices.bytes<Low>(l) : matrices.bytes<float>(l), layout};
}

void pack_contract(const Call& call) {
  if (call.in[0].dtype == ir::DType::i8) return pack_contract_i8(call);
  const Lowering& l = lowering_of(call);
  const Tensor& b = call.in[l.swapped ? 0 : 1];
  pack_either(call, l, b, call.packed);
}

}  // namespace tessera::exec::cpu
