// Instructions of compute capability 9.0a behind a product kernel: the tensor cores of a group
// of four warps (wgmma), copies of tiles by the copy engine (TMA), and the barriers in shared
// memory that both report to. Convention: addresses of shared memory are 32-bit words; a tile has
// rows of 128 bytes (64 elements of bf16, 128 of e4m3), its 16-byte pieces permuted by the 128-byte
// swizzle.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

namespace tessera::exec::cuda::wgmma {

using Word = std::uint32_t;

// Whether code is made for cards that have these instructions.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool there = true;
#else
inline constexpr bool there = false;
#endif

// ---- barriers ----
// A phase of a barrier ends when all arrivals and all bytes that were announced have come. A wait
// names the parity of a phase, so that it may be asked only while the phase before has ended: of a
// barrier that is further behind, the phase before that one would be taken for it.

__device__ __forceinline__ void init_barrier(Word barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Barriers that this thread made are seen by the other blocks of the cluster.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// One arrival that also announces bytes; the phase ends when they are there.
__device__ __forceinline__ void expect_bytes(Word barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// One arrival at the same barrier of block `rank` of the cluster.
__device__ __forceinline__ void arrive_at(Word barrier, unsigned rank) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
__device__ __forceinline__ bool has_ended(Word barrier, unsigned parity) {
  Word done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done;
}
// Until the phase of this parity has ended.
__device__ __forceinline__ void wait(Word barrier, unsigned parity) {
  while (!has_ended(barrier, parity)) {
  }
}
// All threads of all blocks of the cluster.
__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
__device__ __forceinline__ unsigned rank_in_cluster() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// ---- the copy engine ----

__device__ __forceinline__ void prefetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// The box of `map` from (row, col) into shared memory; its bytes count at `barrier`.
__device__ __forceinline__ void load_box(Word to, const CUtensorMap& map, int row, int col,
                                         Word barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(col), "r"(row), "r"(barrier)
      : "memory");
}
// The same into every block of `mask` at once, at the same place, and to the same barrier there.
__device__ __forceinline__ void load_box_to_all(Word to, const CUtensorMap& map, int row, int col,
                                                Word barrier, unsigned mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(col), "r"(row), "r"(barrier), "h"(static_cast<std::uint16_t>(mask))
      : "memory");
}
// Boxes of maps with rows by pairs and by fours (tensor_map.h); `row` is a multiple of 16.
__device__ __forceinline__ void load_pairs(Word to, const CUtensorMap& map, int row, int col,
                                           Word barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(col), "r"(0), "r"(row / 16), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void load_fours_to_all(Word to, const CUtensorMap& map, int row, int col,
                                                  Word barrier, unsigned mask) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %3, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(col), "r"(0), "r"(row / 16), "r"(barrier),
      "h"(static_cast<std::uint16_t>(mask))
      : "memory");
}
__device__ __forceinline__ void store_box(const CUtensorMap& map, int row, int col, Word from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
      "r"(col), "r"(row), "r"(from)
      : "memory");
}
__device__ __forceinline__ void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until all but the last `left` groups of stores have read their shared memory.
template <int left>
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(left) : "memory");
}
// Shared memory that this thread wrote is seen by the copy engine.
__device__ __forceinline__ void publish_to_engine() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Four 8 x 8 matrices; lane 8 m + i gives the address of row i of matrix m.
__device__ __forceinline__ void store_matrices(Word to, Word a, Word b, Word c, Word d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}
// Each of them turned: row 2 t + h of a matrix gets half h of lane 4 g + t at place g.
__device__ __forceinline__ void store_matrices_turned(Word to, Word a, Word b, Word c, Word d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void store_words(Word to, Word a, Word b) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(to), "r"(a), "r"(b) : "memory");
}

// ---- the tensor cores ----

// A factor whose rows have their depth side by side: 8 rows are 1,024 bytes.
__device__ __forceinline__ std::uint64_t describe(Word tile) {
  constexpr std::uint64_t swizzle_128 = 1, rows_8 = 1024 >> 4, unused = 1;
  return swizzle_128 << 62 | rows_8 << 32 | unused << 16 | (tile & 0x3ffff) >> 4;
}
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int left>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

#define TESSERA_WGMMA_8(i)                                                                    \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define TESSERA_WGMMA_32(i) \
  TESSERA_WGMMA_8(i), TESSERA_WGMMA_8(i + 8), TESSERA_WGMMA_8(i + 16), TESSERA_WGMMA_8(i + 24)
#define TESSERA_WGMMA_R0                                                           \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21," \
  "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define TESSERA_WGMMA_R32                                                             \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51," \
  "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define TESSERA_WGMMA_R64                                                             \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83," \
  "%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define TESSERA_WGMMA_R96                                                              \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112," \
  "%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define TESSERA_WGMMA_OF(shape, types, regs, a, b, p, orders)                                     \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " p                                                           \
  ", 0;\n"                                                                                        \
  "wgmma.mma_async.sync.aligned." shape ".f32." types " {" regs "}, " a ", " b ", p, 1, 1" orders \
  ";\n}"
#define TESSERA_WGMMA_ASM(shape, regs, a, b, p) \
  TESSERA_WGMMA_OF(shape, "bf16.bf16", regs, a, b, p, ", 0, 0")
#define TESSERA_WGMMA_BYTES(shape, regs, a, b, p) \
  TESSERA_WGMMA_OF(shape, "e4m3.e4m3", regs, a, b, p, "")

// d += a b of 64 x cols results over a depth of 16; the sums of warp w are its rows 16 w and on,
// d[4 j] .. d[4 j + 3] of lane 4 g + t: (row g, columns 8 j + 2 t and + 1), (row g + 8, the same).
template <int cols>
__device__ __forceinline__ void multiply(float (&d)[cols / 2], std::uint64_t a, std::uint64_t b) {
  const int adds = 1;
  static_assert(cols == 128 || cols == 192 || cols == 256);
  if constexpr (cols == 128)
    asm volatile(
        TESSERA_WGMMA_ASM("m64n128k16", TESSERA_WGMMA_R0 TESSERA_WGMMA_R32, "%64", "%65", "%66")
        : TESSERA_WGMMA_32(0), TESSERA_WGMMA_32(32)
        : "l"(a), "l"(b), "r"(adds));
  else if constexpr (cols == 192)
    asm volatile(
        TESSERA_WGMMA_ASM("m64n192k16", TESSERA_WGMMA_R0 TESSERA_WGMMA_R32 TESSERA_WGMMA_R64, "%96",
                          "%97", "%98")
        : TESSERA_WGMMA_32(0), TESSERA_WGMMA_32(32), TESSERA_WGMMA_32(64)
        : "l"(a), "l"(b), "r"(adds));
  else
    asm volatile(
        TESSERA_WGMMA_ASM("m64n256k16",
                          TESSERA_WGMMA_R0 TESSERA_WGMMA_R32 TESSERA_WGMMA_R64 TESSERA_WGMMA_R96,
                          "%128", "%129", "%130")
        : TESSERA_WGMMA_32(0), TESSERA_WGMMA_32(32), TESSERA_WGMMA_32(64), TESSERA_WGMMA_32(96)
        : "l"(a), "l"(b), "r"(adds));
}

// The same of e4m3 factors over a depth of 32, which the tensor cores add up with some 14 bits.
template <int cols>
__device__ __forceinline__ void multiply_bytes(float (&d)[cols / 2], std::uint64_t a,
                                               std::uint64_t b) {
  const int adds = 1;
  static_assert(cols == 192);
  asm volatile(
      TESSERA_WGMMA_BYTES("m64n192k32", TESSERA_WGMMA_R0 TESSERA_WGMMA_R32 TESSERA_WGMMA_R64, "%96",
                          "%97", "%98")
      : TESSERA_WGMMA_32(0), TESSERA_WGMMA_32(32), TESSERA_WGMMA_32(64)
      : "l"(a), "l"(b), "r"(adds));
}

template <int registers>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

#undef TESSERA_WGMMA_8
#undef TESSERA_WGMMA_32
#undef TESSERA_WGMMA_R0
#undef TESSERA_WGMMA_R32
#undef TESSERA_WGMMA_R64
#undef TESSERA_WGMMA_R96
#undef TESSERA_WGMMA_OF
#undef TESSERA_WGMMA_ASM
#undef TESSERA_WGMMA_BYTES

}  // namespace tessera::exec::cuda::wgmma
