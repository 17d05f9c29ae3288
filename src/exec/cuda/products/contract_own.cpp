#include "exec/cuda/products/contract_own.h"

namespace tessera::exec::cuda {

std::optional<ThinProduct> thin_product(const Operands& operands, std::byte* to) {
  const Way& way = operands.way;
  const Contraction& c = way.c;
  if (!way.by_library() || way.scales > 0 || c.products || c.outer_steps() != 1 ||
      c.outer_k_steps() != 1 || !ir::is_low(way.factors) || way.b_factor != way.factors ||
      (way.type != way.factors && way.type != ir::DType::f32))
    return {};
  const bool m_few = c.m.extent <= c.n.extent;
  const Run &few = m_few ? c.m : c.n, &many = m_few ? c.n : c.m;
  ThinProduct p{.few_rows = (m_few ? operands.a() : operands.b()).data,
                .many_rows = (m_few ? operands.b() : operands.a()).data,
                .c = to,
                .few = few.extent,
                .many = many.extent,
                .depth = c.k.extent,
                .few_row = m_few ? few.a : few.b,
                .many_row = m_few ? many.b : many.a,
                .c_few = few.c,
                .c_many = many.c};
  constexpr std::int64_t chunk = 8;
  if (p.few > most_thin_rows || c.k.a != 1 || c.k.b != 1 || p.depth % chunk != 0 ||
      p.few_row % chunk != 0 || p.many_row % chunk != 0 || !aligned_16(p.few_rows) ||
      !aligned_16(p.many_rows))
    return {};
  // The library's bias runs along the rows of its result.
  if (way.bias >= 0 && way.turned == !m_few) p.bias = operands.addend(way.bias)->data;
  return p;
}

std::optional<GeluProduct> gelu_product(const Operands& operands) {
  const Way& way = operands.way;
  const Contraction& c = way.c;
  const ir::DType bf16 = ir::DType::bf16, factor = way.scaled ? ir::DType::f8e4m3 : bf16;
  if (!way.fused || way.residual >= 0 || way.wide_sums || way.turned || c.products ||
      c.outer_steps() != 1 || c.outer_k_steps() != 1 || way.factors != factor ||
      way.b_factor != factor || way.type != bf16 || c.k.a != 1 || c.k.b != 1 || c.n.c != 1 ||
      c.m.c != c.n.extent)
    return {};
  return GeluProduct{.a = operands.a().data,
                     .b = operands.b().data,
                     .a_scale = reinterpret_cast<const float*>(operands.scale(0)),
                     .b_scale = reinterpret_cast<const float*>(operands.scale(1)),
                     .bias = way.bias < 0 ? nullptr : operands.addend(way.bias)->data,
                     .m = c.m.extent,
                     .n = c.n.extent,
                     .k = c.k.extent,
                     .a_row = c.m.a,
                     .b_row = c.n.b};
}

}  // namespace tessera::exec::cuda
