// A blocked matrix product: B is packed once per block into panels of columns, A a few panels of
// rows at a time, and a micro-kernel runs along k. Small operands (one head of an attention) matter
// as much as large ones, hence the cheap packing. Convention: every element of C is one chain of
// multiply-adds in the order of k, restarted at each block of k. (Before AVX2 a multiply-add rounds
// twice, so bits may differ between such machines and others.)
#include "exec/cpu/gemm/gemm.h"

#include <algorithm>

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

// A block of B fits the second-level cache of one core, a panel of A and one of B the first.
constexpr int64_t most_n_block = 384;
static_assert(sizeof(float) * 384 * (most_n_block + 12) <= gemm_scratch_bytes &&
              sizeof(Low) * low_k_block * (most_n_block + low_rows) <= gemm_scratch_bytes &&
              sizeof(float) * 384 * 12 <= panel_bytes && gemm_scratch_bytes % 64 == 0);

template <class T>
struct Problem {
  int64_t m, n, k;
  float alpha;
  const T* a;
  int64_t rs_a, cs_a;
  const T* b;
  int64_t rs_b, cs_b;
  float beta;
  float* c;
  int64_t rs_c, cs_c;
};

// The micro-kernel's state of this thread, for as long as this lives.
class MicroState {
 public:
  explicit MicroState(const Micro& micro) : micro_(micro) {
    if (micro.begin) micro.begin();
  }
  ~MicroState() {
    if (micro_.end) micro_.end();
  }
  MicroState(const MicroState&) = delete;
  MicroState& operator=(const MicroState&) = delete;

 private:
  const Micro& micro_;
};

std::byte* bytes(void* p) { return static_cast<std::byte*>(p); }
const std::byte* bytes(const void* p) { return static_cast<const std::byte*>(p); }

// All panels of A against `n_size` columns of B from n0 on; `b_panel(j)` is the panel of column j
// of them, with k_size numbers from k0 on.
template <class T, class PanelOf>
void run_block(const Micro& micro, const Problem<T>& p, int64_t n0, int64_t n_size, int64_t k0,
               int64_t k_size, const PanelOf& b_panel, void* a_panel) {
  const int64_t padded = micro.padded(k_size), a_bytes = padded * micro.a_bytes;
  const int64_t step = micro.rows * micro.a_panels(padded);
  for (int64_t first = 0; first < p.m; first += step) {
    const int64_t end = std::min(p.m, first + step);
    std::byte* panel = bytes(a_panel);
    for (int64_t i = first; i < end; i += micro.rows, panel += a_bytes)
      micro.pack_a({.used = std::min(micro.rows, p.m - i),
                    .k = k_size,
                    .padded = padded,
                    .from = p.a + i * p.rs_a + k0 * p.cs_a,
                    .lane_step = p.rs_a,
                    .k_step = p.cs_a},
                   panel);
    for (int64_t j = 0; j < n_size; j += micro.columns) {
      panel = bytes(a_panel);
      for (int64_t i = first; i < end; i += micro.rows, panel += a_bytes)
        micro.tile(padded, panel, b_panel(j),
                   {.c = p.c + i * p.rs_c + (n0 + j) * p.cs_c,
                    .rs = p.rs_c,
                    .cs = p.cs_c,
                    .rows = std::min(micro.rows, p.m - i),
                    .cols = std::min(micro.columns, n_size - j),
                    .alpha = p.alpha,
                    .beta = k0 == 0 ? p.beta : 1});
    }
  }
}

// Columns of a block of B: what `packed` has room for beside panels of A.
int64_t n_block_of(const Micro& micro, int64_t k, int64_t element) {
  const int64_t a_bytes = std::max(micro.a_block, k * micro.a_bytes),
                fit = (int64_t{gemm_scratch_bytes} - a_bytes) / (k * element);
  return std::min(most_n_block, fit / panel_columns * panel_columns);
}

// `packed` holds a block of B and, behind it, panels of A.
template <class T>
void run(const Micro& micro, const Problem<T>& p, void* packed) {
  const MicroState state(micro);
  const int64_t k_step = micro.k_step(p.k), n_block = n_block_of(micro, k_step, sizeof(T));
  void* const a_panel = bytes(packed) + micro.padded(k_step) * n_block * int64_t{sizeof(T)};
  for (int64_t n0 = 0; n0 < p.n; n0 += n_block) {
    const int64_t n_size = std::min(n_block, p.n - n0);
    for (int64_t k0 = 0; k0 < p.k; k0 += k_step) {
      const int64_t k_size = std::min(k_step, p.k - k0), padded = micro.padded(k_size);
      const int64_t panel = padded * micro.b_bytes;  // of micro.columns columns
      // Contiguous rows of B are read along, a few at a time.
      const int64_t q_step = p.cs_b == 1 ? low_group : k_size;
      for (int64_t q = 0; q < k_size; q += q_step) {
        const int64_t q_size = std::min(q_step, k_size - q);
        for (int64_t j = 0; j < n_size; j += micro.columns)
          micro.pack_b({.used = std::min(micro.columns, n_size - j),
                        .k = q_size,
                        .padded = micro.padded(q_size),
                        .from = p.b + (k0 + q) * p.rs_b + (n0 + j) * p.cs_b,
                        .lane_step = p.cs_b,
                        .k_step = p.rs_b},
                       bytes(packed) + j / micro.columns * panel + q * micro.b_bytes);
      }
      run_block(
          micro, p, n0, n_size, k0, k_size,
          [&](int64_t j) { return bytes(packed) + j / micro.columns * panel; }, a_panel);
    }
  }
}

// C = beta C, where there is nothing to multiply.
void only_scale(int64_t m, int64_t n, float beta, float* c, int64_t rs_c, int64_t cs_c) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      c[i * rs_c + j * cs_c] = beta == 0 ? 0 : beta * c[i * rs_c + j * cs_c];
}

template <class T>
int64_t padded_k(int64_t k) {
  return sizeof(T) == sizeof(float) ? k : (k + low_group - 1) / low_group * low_group;
}

}  // namespace

template <class T>
void gemm(int64_t m, int64_t n, int64_t k, float alpha, const T* a, int64_t rs_a, int64_t cs_a,
          const T* b, int64_t rs_b, int64_t cs_b, float beta, float* c, int64_t rs_c, int64_t cs_c,
          void* packed) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) return only_scale(m, n, beta, c, rs_c, cs_c);
  // Vectors run along the columns of C: where its rows are the contiguous ones, compute the
  // transpose.
  if (cs_c != 1 && rs_c == 1)
    run<T>(micro<T>(), {n, m, k, alpha, b, cs_b, rs_b, a, cs_a, rs_a, beta, c, cs_c, rs_c}, packed);
  else
    run<T>(micro<T>(), {m, n, k, alpha, a, rs_a, cs_a, b, rs_b, cs_b, beta, c, rs_c, cs_c}, packed);
}

template <class T>
int64_t packed_b_elements(int64_t k, int64_t n) {
  return padded_k<T>(k) * packed_columns(n);
}

// Panel j has micro.columns columns and all of k.
template <class T>
void gemm_pack_b(int64_t k, int64_t n0, int64_t n_size, const T* b, int64_t rs_b, int64_t cs_b,
                 T* packed) {
  const Micro& kernel = micro<T>();
  for (int64_t j = n0; j < n0 + n_size; j += kernel.columns)
    kernel.pack_b({.used = std::min(kernel.columns, n0 + n_size - j),
                   .k = k,
                   .padded = padded_k<T>(k),
                   .from = b + j * cs_b,
                   .lane_step = cs_b,
                   .k_step = rs_b},
                  packed + j * padded_k<T>(k));
}

template <class T>
void gemm_packed(int64_t m, int64_t n, int64_t k, const T* a, int64_t rs_a, int64_t cs_a,
                 const PackedB<T>& b, float beta, float* c, int64_t rs_c, void* panel) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) return only_scale(m, n, beta, c, rs_c, 1);
  const Micro& kernel = micro<T>();
  const MicroState state(kernel);
  const Problem<T> p{m, n, k, 1, a, rs_a, cs_a, nullptr, 0, 0, beta, c, rs_c, 1};
  const int64_t k_step = kernel.k_step(k), k_all = padded_k<T>(b.k_all);
  for (int64_t k0 = 0; k0 < k; k0 += k_step)
    run_block(
        kernel, p, 0, n, k0, std::min(k_step, k - k0),
        [&](int64_t j) {
          return bytes(b.data + (b.n0 + j) * k_all) + (b.k0 + k0) * kernel.b_bytes;
        },
        panel);
}

#define TESSERA_GEMM_OF(T)                                                                      \
  template void gemm<T>(int64_t, int64_t, int64_t, float, const T*, int64_t, int64_t, const T*, \
                        int64_t, int64_t, float, float*, int64_t, int64_t, void*);              \
  template int64_t packed_b_elements<T>(int64_t, int64_t);                                      \
  template void gemm_pack_b<T>(int64_t, int64_t, int64_t, const T*, int64_t, int64_t, T*);      \
  template void gemm_packed<T>(int64_t, int64_t, int64_t, const T*, int64_t, int64_t,           \
                               const PackedB<T>&, float, float*, int64_t, void*);
TESSERA_GEMM_OF(float)
TESSERA_GEMM_OF(Low)
#undef TESSERA_GEMM_OF

}  // namespace tessera::exec::cpu
