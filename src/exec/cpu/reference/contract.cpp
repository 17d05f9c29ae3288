// Contraction by its definition. Letters fall into four groups: batch (x, w and result), rows (x
// and result), columns (w and result) and the summed ones; one table of offsets per group and
// operand turns any signature into y[b,m,n] = sum_k x[b,m,k] w[b,k,n]. Convention: each element is
// summed over k in order, in double, so that neither blocks nor threads change it.
#include <algorithm>

#include "exec/common/index.h"
#include "exec/cpu/reference/formulas.h"
#include "exec/cpu/reference/instantiate.h"
#include "exec/cpu/reference/quantised.h"

namespace tessera::exec::cpu {
namespace {

constexpr std::int64_t block_rows = 8, block_columns = 32;

// Where an operand keeps element (b, m, n, k).
struct Place {
  std::vector<std::int64_t> b, m, n, k;
};

}  // namespace

template <class T>
void reference_contract(const Call& call) {
  if (ir::is_quantised(call.in[0].dtype)) return contract_quantised(call);
  const auto& attr = call.attr<ir::Contract>();
  const OperandLetters letters = parse_letters(attr.sig);
  CHECK(letters.in.size() == call.in.size(),
        "contract " + attr.sig + " with " + std::to_string(call.in.size()) + " operands");
  const std::string &lx = letters.in[0], &lw = letters.in[1], &ly = letters.out;
  const std::string batch = filter(ly, [&](char c) { return has(lx, c) && has(lw, c); });
  const std::string rows = filter(ly, [&](char c) { return has(lx, c) && !has(lw, c); });
  const std::string columns = filter(ly, [&](char c) { return !has(lx, c); });
  const std::string summed = filter(lx, [&](char c) { return !has(ly, c); }) +
                             filter(lw, [&](char c) { return !has(ly, c) && !has(lx, c); });

  Extents extents;
  for (std::size_t i = 0; i < call.in.size(); ++i) extents.bind(letters.in[i], call.in[i].shape);
  ir::Shape shape;
  for (char letter : ly) shape.push_back(extents[letter]);
  const std::int64_t nb = extents.product(batch), nm = extents.product(rows),
                     nn = extents.product(columns), nk = extents.product(summed);
  const auto place = [&](const std::string& of, const ir::Shape& its) {
    return Place{.b = offsets(batch, extents, of, its),
                 .m = offsets(rows, extents, of, its),
                 .n = offsets(columns, extents, of, its),
                 .k = offsets(summed, extents, of, its)};
  };
  const Place px = place(lx, call.in[0].shape), pw = place(lw, call.in[1].shape),
              py = place(ly, shape);
  std::vector<Place> addends;
  for (std::size_t i = 2; i < call.in.size(); ++i)
    addends.push_back(place(letters.in[i], call.in[i].shape));

  const T *x = call.in[0].as<T>(), *w = call.in[1].as<T>();
  T* y = call.out[0].as<T>();
  T* z = call.out.size() > 1 ? call.out[1].as<T>() : nullptr;  // the value before act

  // w as dense w[b,k,n], n padded with zeros to whole blocks: the innermost loop below runs over
  // neighbours and has a constant length
  const std::int64_t wide = (nn + block_columns - 1) / block_columns * block_columns;
  std::vector<double> dense(static_cast<std::size_t>(nb * nk * wide));
  call.pool.parallel_for(nb * nk, [&](std::int64_t task, int) {
    const T* from = w + pw.b[task / nk] + pw.k[task % nk];
    for (std::int64_t n = 0; n < nn; ++n) dense[task * wide + n] = from[pw.n[n]];
  });

  const std::int64_t blocks = (nm + block_rows - 1) / block_rows;
  call.pool.parallel_for(nb * blocks, [&](std::int64_t task, int) {
    const std::int64_t b = task / blocks, m0 = task % blocks * block_rows,
                       count = std::min(block_rows, nm - m0);
    std::vector<double> panel(
        static_cast<std::size_t>(nk * block_rows));  // x[k, m0 + i], zero beyond the last row
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t k = 0; k < nk; ++k)
        panel[k * block_rows + i] = x[px.b[b] + px.m[m0 + i] + px.k[k]];

    for (std::int64_t n0 = 0; n0 < nn; n0 += block_columns) {
      const std::int64_t width = std::min(block_columns, nn - n0);
      double sum[block_rows][block_columns] = {};
      for (std::int64_t k = 0; k < nk; ++k) {
        const double* from = dense.data() + (b * nk + k) * wide + n0;
        for (std::int64_t i = 0; i < block_rows; ++i)
          for (std::int64_t j = 0; j < block_columns; ++j)
            sum[i][j] += panel[k * block_rows + i] * from[j];
      }
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t j = 0; j < width; ++j) {
          const std::int64_t m = m0 + i, n = n0 + j, at = py.b[b] + py.m[m] + py.n[n];
          double value = sum[i][j];
          for (std::size_t a = 0; a < addends.size(); ++a)
            value += call.in[a + 2].as<T>()[addends[a].b[b] + addends[a].m[m] + addends[a].n[n]];
          if (z) z[at] = static_cast<T>(value);
          if (attr.act == "gelu") value = gelu_erf(value);
          if (attr.act == "gelu_tanh") value = gelu_tanh(value);
          if (y) y[at] = static_cast<T>(value);
        }
    }
  });
}

REFERENCE(contract)

}  // namespace tessera::exec::cpu
