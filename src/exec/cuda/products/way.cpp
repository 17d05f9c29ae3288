#include "exec/cuda/products/way.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "exec/common/index.h"
#include "exec/cuda/products/contract.h"

namespace tessera::exec::cuda {
namespace {

using std::int64_t;

constexpr int64_t most_calls = 64;  // of the library; beyond that the plain kernel takes over
constexpr int64_t most_roundings =
    4;  // partial sums that may be rounded to a low type on their way

// The stride of a whole run in an addend; nothing where its letters do not follow each other.
std::optional<int64_t> run_stride(const Run& run, const Strides& strides, const Strides& extents) {
  if (run.letters.empty()) return 0;
  for (std::size_t i = 0; i + 1 < run.letters.size(); ++i) {
    const auto outer = letter_of(run.letters[i]), inner = letter_of(run.letters[i + 1]);
    if (strides[outer] != strides[inner] * extents[inner]) return {};
  }
  return strides[letter_of(run.letters.back())];
}

// A few small results of long sums, the gradients of small weights: the library cuts the sum of one
// product into parts that fill the card, but not those of several at once.
bool few_and_deep(const Run& batch, const Contraction& c) {
  return batch.extent <= 4 && c.m.extent * c.n.extent <= 256 * 256 && c.k.extent >= 16384;
}

// How D lies decides which side is the left factor: rows of D must be neighbours.
void choose_sides(Way& way) {
  const Contraction& c = way.c;
  const auto fits = [](const Run& rows, const Run& cols) {
    return (rows.extent == 1 || rows.c == 1) && (cols.extent == 1 || cols.c >= rows.extent);
  };
  if (c.products || c.k.extent == 0 || c.c_elements() == 0) return;
  if (!fits(c.n, c.m) && !fits(c.m, c.n)) return;
  way.turned = !fits(c.n, c.m) || (c.n.extent == 1 && fits(c.m, c.n));
  way.loops = c.outer;
  const auto larger = [](const Run& p, const Run& q) { return p.extent < q.extent; };
  const auto largest = std::max_element(way.loops.begin(), way.loops.end(), larger);
  // Not every version of the library has batches of quantised factors.
  if (largest != way.loops.end() && !few_and_deep(*largest, c) && !ir::is_quantised(way.factors)) {
    way.batch = *largest;
    way.loops.erase(largest);
  }
  const Run &rows = way.turned ? c.m : c.n, &cols = way.turned ? c.n : c.m;
  const bool a_left = way.turned;
  Product p{.factors = a_left ? way.factors : way.b_factor,
            .result = way.type,
            .right_factor = a_left ? way.b_factor : way.factors,
            .scaled = way.scaled,
            .rows = rows.extent,
            .cols = cols.extent,
            .depth = c.k.extent,
            .batches = way.batch.extent};
  const Product::Factor a{c.m.a, c.k.a, way.batch.a}, b{c.n.b, c.k.b, way.batch.b};
  p.left = way.turned ? a : b;
  p.right = way.turned ? b : a;
  p.d = {cols.c, way.batch.c};
  if (blas_takes(p) && way.calls() <= most_calls) way.product = p;
}

// Addends that the library can add: one vector along the rows of D, and one that lies as D does.
void choose_addends(Way& way, std::span<const ir::DType> addends, bool rounds) {
  const Contraction& c = way.c;
  const Run &rows = way.turned ? c.m : c.n, &cols = way.turned ? c.n : c.m;
  const auto scales = static_cast<std::size_t>(way.scales);
  way.fused =
      way.by_library() && way.type != ir::DType::f64 && !rounds && (scales == 0 || way.scaled);
  for (std::size_t i = scales; i < addends.size() && way.fused; ++i) {
    const Strides& s = c.addend_strides[i];
    const auto stride = [&](const Run& run) { return run_stride(run, s, c.extents); };
    bool everywhere = true;  // it lies as the result does
    int64_t step = 1;
    for (std::size_t d = way.result.size(); d-- > 0; step *= c.extents[letter_of(way.result[d])])
      everywhere &= c.extents[letter_of(way.result[d])] == 1 || s[letter_of(way.result[d])] == step;
    const bool vector = (rows.extent == 1 || stride(rows) == 1) && stride(cols) == 0 &&
                        stride(way.batch).has_value() && c.outer_k_steps() == 1;
    const bool same = addends[i] == way.type;
    // Beside factors of one byte the library wants a bias of two, and a residual leaves no place to
    // try algorithms out.
    const bool bytes = ir::is_quantised(way.factors);
    if (same && everywhere && way.residual < 0 && !bytes)
      way.residual = static_cast<int>(i);
    else if (same && vector && way.bias < 0 && !(bytes && way.type == ir::DType::f32))
      way.bias = static_cast<int>(i);
    else
      way.fused = false;
  }
  if (!way.fused) way.bias = way.residual = -1;
  if (way.bias >= 0)
    way.product.bias_batch =
        *run_stride(way.batch, c.addend_strides[static_cast<std::size_t>(way.bias)], c.extents);
}

}  // namespace

Way way_of(const ir::Contract& attr, std::span<const ir::Shape> shapes,
           std::span<const ir::DType> dtypes) {
  CHECK(shapes.size() <= 2 + most_addends, "contract: at most 4 addends");
  Way way;
  way.c = analyse_contraction(attr.sig, shapes);
  way.result = parse_letters(attr.sig).out;
  way.factors = dtypes[way.c.swapped ? 1 : 0];
  way.b_factor = dtypes[way.c.swapped ? 0 : 1];
  way.type = attr.out.value_or(dtypes[0]);
  way.scales = attr.scales;
  way.scaled = attr.scales == 2 && shapes[2].empty() && shapes[3].empty();
  choose_sides(way);
  const bool rounds =
      ir::is_low(way.type) && way.by_library() && way.c.outer_k_steps() > most_roundings;
  choose_addends(way, dtypes.subspan(2), rounds);
  const bool adds = dtypes.size() > 2 && !way.fused;
  const bool bare = ir::is_quantised(way.factors) && !way.by_library();
  way.wide_sums = rounds || (ir::is_low(way.type) && (adds || bare));
  if (way.wide_sums) way.product.result = ir::DType::f32;
  return way;
}

}  // namespace tessera::exec::cuda
