#include "exec/cuda/products/tensor_map.h"

#include <cudaTypedefs.h>

#include <array>
#include <optional>

#include "base/check.h"
#include "exec/cuda/kernel.h"

namespace tessera::exec::cuda::wgmma {
namespace {

// The driver's function behind maps of tensors; null: it has none.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static const auto found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    must(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                          cudaEnableDefault, &result),
         "ask the driver for maps of tensors");
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  return found;
}

// The loops of a box: extents and strides in elements, the first of stride 1.
struct Loops {
  unsigned rank = 2;
  std::array<std::int64_t, 5> extents{}, strides{};
  std::array<int, 5> box{};
};

std::optional<CUtensorMap> encoded(const void* data, bool bytes, const Loops& loops,
                                   int box_bytes) {
  const std::int64_t element = bytes ? 1 : 2;
  std::array<cuuint64_t, 5> extents{}, strides{};
  std::array<cuuint32_t, 5> box{};
  const std::array<cuuint32_t, 5> steps{1, 1, 1, 1, 1};
  for (std::size_t i = 0; i < loops.rank; ++i) {
    extents[i] = static_cast<cuuint64_t>(loops.extents[i]);
    strides[i] = static_cast<cuuint64_t>(loops.strides[i] * element);
    box[i] = static_cast<cuuint32_t>(loops.box[i]);
  }
  CUtensorMap map;
  const CUresult made =
      encoder()(&map, bytes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                loops.rank, const_cast<void*>(data), extents.data(), strides.data() + 1, box.data(),
                steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                box_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return made == CUDA_SUCCESS ? std::optional(map) : std::nullopt;
}

Loops pairs(const Matrix& m, int box_rows) {
  const std::int64_t row = m.row_stride;
  return {.rank = 4,
          .extents = {m.cols, 8, 2, m.rows / 16},
          .strides = {1, 2 * row, row, 16 * row},
          .box = {128, 8, 2, box_rows / 16}};
}
Loops fours(const Matrix& m, int box_rows) {
  const std::int64_t row = m.row_stride;
  return {.rank = 5,
          .extents = {m.cols, 2, 4, 2, m.rows / 16},
          .strides = {1, row, 4 * row, 2 * row, 16 * row},
          .box = {128, 2, 4, 2, box_rows / 16}};
}

CUtensorMap taken(const std::optional<CUtensorMap>& map) {
  CHECK(map, "contract: the driver refused the map of a tensor");
  return *map;
}

}  // namespace

bool has_maps() { return encoder() != nullptr; }

// Strides that do not grow from loop to loop are in no manual: a matrix at any address says whether
// the driver takes them.
bool has_maps_apart() {
  static const bool taken = [] {
    const Matrix any{.data = reinterpret_cast<const void*>(std::uintptr_t{1} << 20),
                     .bytes = true,
                     .rows = 256,
                     .cols = 256,
                     .row_stride = 256};
    return has_maps() && encoded(any.data, true, pairs(any, 128), 128) &&
           encoded(any.data, true, fours(any, 96), 128);
  }();
  return taken;
}

CUtensorMap map_of(const Matrix& m, int box_rows, int box_bytes) {
  const Loops loops{.extents = {m.cols, m.rows},
                    .strides = {1, m.row_stride},
                    .box = {box_bytes / (m.bytes ? 1 : 2), box_rows}};
  return taken(encoded(m.data, m.bytes, loops, box_bytes));
}
CUtensorMap map_of_pairs(const Matrix& m, int box_rows) {
  return taken(encoded(m.data, true, pairs(m, box_rows), 128));
}
CUtensorMap map_of_fours(const Matrix& m, int box_rows) {
  return taken(encoded(m.data, true, fours(m, box_rows), 128));
}

}  // namespace tessera::exec::cuda::wgmma
