// Fast sums, of f32 and bf16 in f32: columns of many rows (gradients of biases), rows, everything;
// and the sum of squares in double. Convention: partial sums are cut by shape alone and added in a
// fixed order; they lie in the shared scratch.
#include "exec/cpu/kernel.h"

#include <algorithm>

#include "exec/common/index.h"
#include "exec/cpu/low.h"
#include "exec/cpu/shape.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {

namespace {
constexpr std::int64_t max_parts = 64;

// A flat range in at most 64 parts of whole chunks.
struct Parts {
  std::int64_t size, count;
  explicit Parts(std::int64_t n) {
    const std::int64_t chunks = (n + chunk - 1) / chunk;
    size = chunk * std::max<std::int64_t>(1, (chunks + max_parts - 1) / max_parts);
    count = (n + size - 1) / size;
  }
};

// f32 within blocks, double across them.
double long_sum(const Tensor& x, std::int64_t begin, std::int64_t n) {
  Piece room;
  const std::int64_t block = is_bf16(x) ? low_piece : 4096;
  double total = 0;
  for (std::int64_t i = 0; i < n; i += block) {
    const std::int64_t size = std::min(block, n - i);
    total += static_cast<double>(vector_sum(wide(x, begin + i, size, room.data()), size));
  }
  return total;
}

// y[c] = sum over rows of x[begin + row * pitch + c].
void column_sum(const Tensor& x, std::int64_t begin, std::int64_t rows, std::int64_t pitch,
                std::int64_t columns, float* y) {
  is_bf16(x) ? vector_column_sum(x.as<Low>() + begin, rows, pitch, columns, y)
             : vector_column_sum(x.as<float>() + begin, rows, pitch, columns, y);
}

template <class PartSum>
double sum_of_parts(const Call& call, std::int64_t n, const PartSum& part_sum) {
  const Parts parts(n);
  double* partial = call.shared_scratch<double>();
  call.pool.parallel_for(parts.count, [&](std::int64_t i, int) {
    partial[i] = part_sum(i * parts.size, std::min(parts.size, n - i * parts.size));
  });
  double total = 0;
  for (std::int64_t i = 0; i < parts.count; ++i) total += partial[i];
  return total;
}

// [outer, rows, columns] -> [outer, columns]. Tasks are blocks of columns; where these are few,
// rows are cut as well and added up afterwards.
struct Columns {
  static constexpr std::int64_t block = 2048;
  std::int64_t outer, rows, columns, blocks, parts = 1;
  Columns(std::int64_t outer, std::int64_t rows, std::int64_t columns)
      : outer(outer), rows(rows), columns(columns), blocks((columns + block - 1) / block) {
    const std::int64_t width = outer * columns;
    if (outer * blocks < 16 && width > 0)
      parts = std::clamp<std::int64_t>(std::min(rows / 64, 131072 / width), 1, 32);
  }
};

void sum_columns(const Call& call, const Columns& shape, float* y) {
  const std::int64_t width = shape.outer * shape.columns;
  float* partial = shape.parts > 1 ? call.shared_scratch<float>() : y;
  call.pool.parallel_for(shape.outer * shape.parts * shape.blocks, [&](std::int64_t task, int) {
    const std::int64_t first = task % shape.blocks * Columns::block,
                       part = task / shape.blocks % shape.parts,
                       o = task / shape.blocks / shape.parts;
    const ir::Range rows =
        ir::split(shape.rows, static_cast<int>(shape.parts), static_cast<int>(part));
    column_sum(call.in[0], (o * shape.rows + rows.begin) * shape.columns + first, rows.size,
               shape.columns, std::min(Columns::block, shape.columns - first),
               partial + part * width + o * shape.columns + first);
  });
  if (shape.parts > 1) vector_column_sum(partial, shape.parts, width, width, y);
}

// The operand's index beside its strides in the result: a summed dim has stride 0.
Walk walk_of(const ir::Sum& sum, const ir::Shape& in, const ir::Shape& out) {
  const OperandLetters letters = parse_letters(sum.sig);
  std::vector<std::int64_t> stride;
  for (char letter : letters.in[0]) stride.push_back(stride_of(letters.out, out, letter));
  return Walk(in, stride);
}
bool is_everything(const Walk& walk) { return walk.rank() == 1 && walk.stride[0] == 0; }
bool is_rows(const Walk& walk) {
  return walk.rank() == 2 && walk.stride[0] == 1 && walk.stride[1] == 0;
}
bool is_columns(const Walk& walk) {
  const std::size_t n = walk.rank();
  return (n == 2 || n == 3) && walk.stride[n - 1] == 1 && walk.stride[n - 2] == 0 &&
         (n == 2 || walk.stride[0] == walk.extent[n - 1]);
}
Columns columns_of(const Walk& walk) {
  const std::size_t n = walk.rank();
  return {n == 3 ? walk.extent[0] : 1, walk.extent[n - 2], walk.extent[n - 1]};
}

// Facts that follow from signature and shapes. Offsets are for signatures that are neither
// everything, rows nor columns.
struct SumAnalysis {
  Walk walk;
  bool generic = false;
  std::vector<std::int64_t> kept_at{}, summed_at{};

  SumAnalysis(const ir::Sum& sum, const ir::Shape& in, const ir::Shape& out)
      : walk(walk_of(sum, in, out)) {
    const bool copies = walk.rank() == 0 || (walk.rank() == 1 && walk.stride[0] == 1);
    generic = !copies && !is_everything(walk) && !is_rows(walk) && !is_columns(walk);
    if (!generic) return;
    const OperandLetters letters = parse_letters(sum.sig);
    Extents extents;
    extents.bind(letters.in[0], in);
    const std::string summed =
        filter(letters.in[0], [&](char letter) { return !has(letters.out, letter); });
    kept_at = offsets(letters.out, extents, letters.in[0], in);
    summed_at = offsets(summed, extents, letters.in[0], in);
  }
};

// Any other signature: one result at a time, its operand elements in order.
void sum_generic(const Call& call, const SumAnalysis& analysis, float* y) {
  const std::vector<std::int64_t>&kept_at = analysis.kept_at, &summed_at = analysis.summed_at;
  const Tensor& x = call.in[0];
  const std::int64_t work = std::max<std::int64_t>(1, static_cast<std::int64_t>(summed_at.size()));
  for_chunks(call.pool, static_cast<std::int64_t>(kept_at.size()),
             std::max<std::int64_t>(1, chunk / work), [&](std::int64_t first, std::int64_t count) {
               for (std::int64_t i = first; i < first + count; ++i) {
                 double total = 0;
                 float room;
                 for (std::int64_t at : summed_at)
                   total += static_cast<double>(
                       *wide(x, kept_at[static_cast<std::size_t>(i)] + at, 1, &room));
                 y[i] = static_cast<float>(total);
               }
             });
}

constexpr Scratch flat_scratch{.shared = sizeof(double) * max_parts};

// Bytes of partial sums; behind them lie, in f32, results that are rounded at the end.
std::size_t partial_sums(const Walk& walk) {
  if (is_everything(walk)) return flat_scratch.shared;
  if (!is_columns(walk)) return 0;
  const Columns columns = columns_of(walk);
  if (columns.parts == 1) return 0;
  return sizeof(float) * static_cast<std::size_t>(columns.parts * columns.outer * columns.columns);
}
float* rounded_later(const Call& call) {
  const Walk walk = walk_of(call.attr<ir::Sum>(), call.in[0].shape, call.out[0].shape);
  return reinterpret_cast<float*>(call.shared + partial_sums(walk));
}
}  // namespace

void fast_sum(const Call& call) {
  const Tensor &x = call.in[0], &out = call.out[0];
  const auto& analysis =
      call.once<SumAnalysis>([&] { return SumAnalysis(call.attr<ir::Sum>(), x.shape, out.shape); });
  const Walk& walk = analysis.walk;
  float* const y = is_bf16(out) ? rounded_later(call) : out.as<float>();
  if (x.elements() == 0) {
    vector_fill(y, out.elements(), 0.0f);
  } else if (walk.rank() == 0 || (walk.rank() == 1 && walk.stride[0] == 1)) {
    for_pieces(call, out.elements(), [&](std::int64_t begin, std::int64_t size) {
      Piece room;
      vector_copy(wide(x, begin, size, room.data()), y + begin, size);
    });
  } else if (is_everything(walk)) {
    y[0] = static_cast<float>(sum_of_parts(
        call, walk.extent[0],
        [&](std::int64_t begin, std::int64_t size) { return long_sum(x, begin, size); }));
  } else if (is_rows(walk)) {
    const std::int64_t rows = walk.extent[0], columns = walk.extent[1];
    for_chunks(call.pool, rows, std::max<std::int64_t>(1, chunk / columns),
               [&](std::int64_t first, std::int64_t count) {
                 for (std::int64_t row = first; row < first + count; ++row)
                   y[row] = static_cast<float>(long_sum(x, row * columns, columns));
               });
  } else if (is_columns(walk)) {
    sum_columns(call, columns_of(walk), y);
  } else {
    sum_generic(call, analysis, y);
  }
  give(out, 0, out.elements(), y);
}

static double all_squares(const Call& call) {
  const float* x = call.in[0].as<float>();
  return sum_of_parts(call, call.in[0].elements(), [&](std::int64_t begin, std::int64_t size) {
    return vector_sumsq(x + begin, size);
  });
}
void fast_sumsq(const Call& call) {
  *call.out[0].as<float>() = static_cast<float>(all_squares(call));
}
void fast_alarm(const Call& call) {
  *call.out[0].as<float>() = static_cast<float>(alarm_of(all_squares(call)));
}

Scratch scratch_sum(const ir::Attrs& attrs, std::span<const ir::Type> in,
                    std::span<const ir::Type> out) {
  const std::size_t later = out[0].dtype == ir::DType::bf16
                                ? sizeof(float) * static_cast<std::size_t>(out[0].elements())
                                : 0;
  return {.shared =
              partial_sums(walk_of(std::get<ir::Sum>(attrs), in[0].shape, out[0].shape)) + later};
}

Scratch scratch_sumsq(const ir::Attrs&, std::span<const ir::Type>, std::span<const ir::Type>) {
  return flat_scratch;
}
Scratch scratch_alarm(const ir::Attrs&, std::span<const ir::Type>, std::span<const ir::Type>) {
  return flat_scratch;
}

}  // namespace tessera::exec::cpu
