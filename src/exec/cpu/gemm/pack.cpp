#include "exec/cpu/gemm/pack.h"

#include <algorithm>

namespace tessera::exec::cpu {

using std::int64_t;

namespace {
std::byte* bytes(void* p) { return static_cast<std::byte*>(p); }
}  // namespace

void pack_panels(const Micro& micro, bool of_a, const Lanes& all, int64_t element, std::byte* to) {
  const Pack pack = of_a ? micro.pack_a : micro.pack_b;
  const auto beside = of_a ? micro.pack_beside_a : micro.pack_beside_b;
  const int64_t width = of_a ? micro.rows : micro.columns,
                bytes = of_a ? micro.a_bytes : micro.b_bytes,
                step = all.lane_step == 1 && !(of_a && micro.row_major) ? low_group : all.k,
                done = all.lane_step == 1 && beside ? beside(all, to) : 0;
  const auto* const from = static_cast<const std::byte*>(all.from);
  for (int64_t k = 0; k < all.k && done < all.used; k += step) {
    const int64_t size = std::min(step, all.k - k);
    for (int64_t lane = done; lane < all.used; lane += width)
      pack({.used = std::min(width, all.used - lane),
            .k = size,
            .padded = k + size < all.k ? size : all.padded - k,
            .from = from + (lane * all.lane_step + k * all.k_step) * element,
            .lane_step = all.lane_step,
            .k_step = all.k_step},
           to + (lane / width * all.pitch + k) * bytes);
  }
}

template <class T>
int64_t packed_b_elements(int64_t k, int64_t n) {
  return padded_k<T>(k) * packed_columns(n);
}

// Panel j has micro.columns columns and all of k.
template <class T>
void gemm_pack_b(int64_t k, int64_t n0, int64_t n_size, const T* b, int64_t rs_b, int64_t cs_b,
                 T* packed, PackedRows rows) {
  const Micro& kernel = micro<T>();
  const int64_t pitch = padded_k<T>(k), size = std::min(rows.size, k - rows.first);
  pack_panels(kernel, false,
              {.used = n_size,
               .k = size,
               .padded = rows.first + size < k ? size : pitch - rows.first,
               .from = b + n0 * cs_b + rows.first * rs_b,
               .lane_step = cs_b,
               .k_step = rs_b,
               .pitch = pitch},
              sizeof(T), bytes(packed + n0 * pitch) + rows.first * kernel.b_bytes);
}

int64_t packed_a_elements(int64_t m, int64_t k) {
  return (m + scattered_rows - 1) / scattered_rows * scattered_rows * k;
}
void gemm_pack_a(int64_t m, int64_t k, const float* a, int64_t rs_a, int64_t cs_a, float* packed,
                 PackedRows part) {
  const Micro& kernel = micro_f32();
  const int64_t size = std::min(part.size, k - part.first);
  pack_panels(kernel, true,
              {.used = m,
               .k = size,
               .padded = size,
               .from = a + part.first * cs_a,
               .lane_step = rs_a,
               .k_step = cs_a,
               .pitch = k},
              sizeof(float), bytes(packed) + part.first * kernel.a_bytes);
}

template int64_t packed_b_elements<float>(int64_t, int64_t);
template int64_t packed_b_elements<Low>(int64_t, int64_t);
template void gemm_pack_b<float>(int64_t, int64_t, int64_t, const float*, int64_t, int64_t, float*,
                                 PackedRows);
template void gemm_pack_b<Low>(int64_t, int64_t, int64_t, const Low*, int64_t, int64_t, Low*,
                               PackedRows);

}  // namespace tessera::exec::cpu
