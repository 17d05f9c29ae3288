// Micro-kernels: the register tile of a product, and how its operands lie in the panels it reads.
// One driver (gemm.cpp, scattered.cpp) runs any of them. Convention: an element of C is one chain
// of multiply-adds in the order of k, so its bits do not depend on the tile it falls into; sums are
// f32.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tessera::exec::cpu {

// bf16 as it lies in memory.
using Low = std::uint16_t;

struct Micro;
// Fetches the panel of B that comes next, a share of it with each tile.
class NextPanel {
 public:
  NextPanel() = default;
  NextPanel(const Micro& micro, const void* panel, std::int64_t padded_k, std::int64_t tiles);
  void fetch_share() {
    for (std::int64_t at = 0; at < share_; at += line, at_ += line) __builtin_prefetch(at_, 0, 2);
  }

 private:
  static constexpr std::int64_t line = 64;
  const std::byte* at_ = nullptr;
  std::int64_t share_ = 0;
};

// A tile of C = alpha sums + beta C: `rows` x `cols` of it count.
struct TileOut {
  float* c = nullptr;
  std::int64_t rs = 0, cs = 1;
  std::int64_t rows = 0, cols = 0;
  float alpha = 1, beta = 0;
  // Factors of i8 (i8.h): C is exact sums in i32, at `sums` instead of `c`; cs and alpha are 1,
  // beta is 0 or 1. Where beta is 0 the sums of a column begin with its number in `start`.
  std::int32_t* sums = nullptr;
  const std::int32_t* start = nullptr;
  std::int64_t a_pitch = 0;  // bytes between rows of A in a panel that is row-major
  // Tiles below each other, where Micro::walks is true: `rows` counts those of all of them, whose
  // panels of A follow each other.
  NextPanel next{};
  // One number for each column that is added to complete sums, where Micro::offsets is true.
  const float* offset = nullptr;
};

// The finish of C while it is near: relu(C scale + offset + addend), and where `low` is given that
// is rounded into it instead. Columns of scale and offset start with the product's; the addend
// and `low` have `pitch` between their rows. For tile_low and product alone: an activation, whose
// result is `low`, of an offset without a scale (of i8: with one); `before`, unless null, is what
// it is applied to. For a product of i8 with an activation alone: `bytes` instead of `low`, which
// is times `inverse` there.
enum class Act { none, gelu, gelu_tanh };
struct Finish {
  const float *scale = nullptr, *offset = nullptr;
  const float* addend = nullptr;
  const Low* low_addend = nullptr;
  bool relu = false;
  Low* low = nullptr;
  std::int64_t pitch = 0;
  Act act = Act::none;
  Low* before = nullptr;
  std::int8_t* bytes = nullptr;
  float inverse = 1;

  bool nothing() const { return !scale && !addend && !low_addend && !relu && !ends(); }
  bool ends() const { return low || bytes; }  // results do not go to C
  // That of the tile whose first element is C's (row, column).
  Finish at(std::int64_t row, std::int64_t column) const {
    Finish f = moved(row * pitch + column);
    if (scale) f.scale += column;
    if (offset) f.offset += column;
    return f;
  }
  // Addends and results so many elements on.
  Finish moved(std::int64_t by) const {
    Finish f = *this;
    if (addend) f.addend += by;
    if (low_addend) f.low_addend += by;
    if (low) f.low += by;
    if (before) f.before += by;
    if (bytes) f.bytes += by;
    return f;
  }
};

// `used` lanes (rows of A, columns of B) of k numbers each, `lane_step` and `k_step` elements
// apart, into a panel whose k is `padded`. Numbers that are missing become zeros, lanes that are
// missing become zeros or the last one again: nobody reads their sums. Panels that are packed
// together are `pitch` numbers of k apart, and so are rows that are turned.
struct Lanes {
  std::int64_t used = 0, k = 0, padded = 0;
  const void* from = nullptr;
  std::int64_t lane_step = 0, k_step = 0, pitch = 0;
};
using Pack = void (*)(const Lanes& lanes, void* panel);

// Rows of A that lie in pieces: run t of row i begins at rows[t * pitch + i] and has `length`
// numbers, `step` apart.
struct ScatteredRows {
  std::int64_t length = 0;
  const void* const* rows = nullptr;
  std::int64_t pitch = 0, step = 1;
};

// A whole product of bf16 with a packed B: C, or what `finish` makes of it, for m rows and n
// columns; k numbers. Row i of A lies at a + i * row; or, where `a` is null, in pieces, each padded
// to a group of four, of which numbers from k0 on are multiplied. `more`: sums begin with C's.
// Where `finish` has a `low`, results go there and C is not written; its addend is bf16 or none.
// Products of i8 (i8.h) are the same in pairs of bytes, each of them a number of k and of A's rows;
// A is a matrix, `finish` ends all of it, and there is no C.
struct LowProduct {
  std::int64_t m = 0, n = 0, k = 0;
  const Low* a = nullptr;
  std::int64_t row = 0;
  ScatteredRows pieces{};
  std::int64_t k0 = 0;
  const std::byte* b = nullptr;  // its first panel
  std::int64_t b_pitch = 0;      // bytes between panels
  std::int64_t b_row = 128;      // bytes between pairs of k; those of fewer have columns in common
  bool more = false;
  float* c = nullptr;
  std::int64_t rs = 0;
  Finish finish{};
  void* room = nullptr;  // of panel_bytes (gemm.h)

  std::int64_t parts() const {
    const std::int64_t length = (pieces.length + 3) / 4 * 4;
    return (k0 + k + length - 1) / length - k0 / length;
  }
};

// Scores of an attention get this added: dense rows of f32 or of bf16, or nothing.
struct Addend {
  const float* wide = nullptr;
  const Low* low = nullptr;
};
// `rows` queries of one head of an attention over s keys of d numbers, each at its first token;
// tokens are `row` elements apart. o = softmax(scale q k^T + bias + mask) v; lse is that of a
// query's scores. Null: nobody reads it. `next` elements behind its tokens lie those of the head
// that the thread is likely to take next, or 0.
struct Attend {
  const Low *q = nullptr, *k = nullptr, *v = nullptr;
  Low* o = nullptr;
  float* lse = nullptr;
  std::int64_t row = 0, rows = 0, s = 0, d = 0, next = 0;
  float scale = 1;
  Addend bias, mask;
  void* room = nullptr;  // of the calling thread, 64-byte aligned
  std::int64_t room_bytes = 0;
};

// The gradient of such a head, all t queries of it: dq, dk and dv, whose tokens are `to_row`
// elements apart; null: nobody reads it. dS is added to bias_sum, dense rows of f32, unless that is
// null. `next` is as above.
struct AttendGrad {
  const Low *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr, *d_o = nullptr;
  const float* lse = nullptr;
  Low *dq = nullptr, *dk = nullptr, *dv = nullptr;
  float* bias_sum = nullptr;
  std::int64_t row = 0, to_row = 0, t = 0, s = 0, d = 0, next = 0;
  float scale = 1;
  Addend bias, mask;
  void* room = nullptr;  // of the calling thread, 64-byte aligned
  std::int64_t room_bytes = 0;
};

// The register tile whose rows of A are read where they lie, [k0, k0 + k) of their numbers, or in a
// packed panel, whose numbers of a row are Micro::rows apart; its columns are those of one or
// several panels of B, `b_pitch` bytes apart. Null: rows of A are always packed.
struct InPlace {
  std::int64_t rows = 0, columns = 0;
  void (*tile)(const ScatteredRows& a, std::int64_t k0, std::int64_t k, const void* b,
               std::int64_t b_pitch, const TileOut& out) = nullptr;
};

struct Micro {
  std::string_view name;
  std::int64_t rows = 0, columns = 0;     // of the register tile
  std::int64_t group = 1;                 // panels hold k in whole groups
  std::int64_t a_bytes = 0, b_bytes = 0;  // of one number of k in a panel
  std::int64_t k_block = 384;             // k of the panels that fit the first-level cache
  // Bytes of panels of A that stay in the second-level cache while panels of B pass through the
  // first. 0: it is the other way round, one panel of A meets many of B.
  std::int64_t a_block = 0;
  bool walks = false;      // tiles know TileOut::next
  bool offsets = false;    // tiles know TileOut::offset
  bool row_major = false;  // a panel of A is its rows one after the other: a copy of them is one
  bool turns = false;      // gradients of filters may turn their images (images/conv.h)
  Pack pack_a = nullptr, pack_b = nullptr;  // one panel
  // Several panels together, of lanes that lie side by side: as many of the first lanes as they
  // take, and says how many. Null: each panel is packed by itself.
  std::int64_t (*pack_beside_a)(const Lanes& lanes, void* panels) = nullptr;
  std::int64_t (*pack_beside_b)(const Lanes& lanes, void* panels) = nullptr;
  InPlace in_place{};
  void (*tile)(std::int64_t padded_k, const void* a, const void* b, const TileOut& out) = nullptr;
  // The same, finished and rounded from registers: the pointers of `finish` are at the tile's first
  // element, `low` is one of them, and the addend is bf16 or none. C is read where beta is 1, and
  // never written. Walks. Null: C is finished when its tiles are done.
  void (*tile_low)(std::int64_t padded_k, const void* a, const void* b, const TileOut& out,
                   const Finish& finish) = nullptr;
  // All tiles of a product with a packed B, in an order of its own. Null: the driver orders them.
  void (*product)(const LowProduct& product) = nullptr;
  // `size` numbers of pieces, `from` on, of `rows` rows into a panel, which has them in whole
  // groups (bf16: of four, the last filled up with zeros). Null: rows are copied side by side and
  // packed from there.
  void (*pack_pieces)(const void* const* rows, std::int64_t from, std::int64_t size,
                      void* panel) = nullptr;
  // False: it does not take these sizes, and nothing was done. Null: it takes none.
  bool (*attend)(const Attend& head) = nullptr;
  bool (*attend_grad)(const AttendGrad& head) = nullptr;
  // Around the tiles of one product, on its thread; may be null.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;

  // Rows of A are packed even where they lie as they are read.
  bool packs_rows() const { return !product && !in_place.tile; }
  std::int64_t padded(std::int64_t k) const { return (k + group - 1) / group * group; }
  // Panels of A, of a whole block of k each, that are packed together.
  std::int64_t a_panels(std::int64_t padded_k) const {
    return std::max<std::int64_t>(1, a_block / (padded_k * a_bytes));
  }
  // Even blocks of k, of whole groups.
  std::int64_t k_step(std::int64_t k) const {
    const std::int64_t parts = std::max<std::int64_t>(1, (k + k_block - 1) / k_block);
    return padded((k + parts - 1) / parts);
  }
};

// Shares of the panel of B that comes next for `tiles` tiles; nothing where A is no block, or where
// panels are so small that all of B stays near.
inline NextPanel::NextPanel(const Micro& micro, const void* panel, std::int64_t padded_k,
                            std::int64_t tiles)
    : at_(static_cast<const std::byte*>(panel)) {
  constexpr std::int64_t small = 128;
  const std::int64_t lines = padded_k * micro.b_bytes / line;
  if (micro.a_block > 0 && panel && lines >= small) share_ = (lines + tiles - 1) / tiles * line;
}

// Bounds for every micro-kernel of its element type, so that the room of a thread does not depend
// on the machine. One whose blocks of k are longer than low_k_block takes fewer columns at a time.
inline constexpr std::int64_t low_group = 32, low_rows = 32, low_k_block = 512;
inline constexpr std::int64_t most_low_k_block = 3072, most_f32_k_block = 768;
// Where Micro::product reads rows in place it does so with `most_short_pieces` pieces of less than
// low_group numbers too, each a step of its own: multiples of four, from the shortest on.
inline constexpr std::int64_t shortest_piece = 12, most_short_pieces = 16;
inline constexpr std::int64_t panel_columns = 32;  // panels of B begin at multiples of it
inline constexpr std::int64_t most_a_block = 264 * 384 * 4;

// That of the best instruction set; `use_low_micro` may have chosen another.
const Micro& micro_f32();
const Micro& micro_low();
template <class T>
const Micro& micro() {
  if constexpr (std::is_same_v<T, float>)
    return micro_f32();
  else
    return micro_low();
}

// bf16 micro-kernels that this machine can run, the best first; the last one runs everywhere.
std::vector<const Micro*> low_micros();
// Which of them is used from now on, by its name; empty: the best. False: this machine has none.
bool use_low_micro(std::string_view name);
// The f32 micro-kernel that runs everywhere is used from now on, or the best again.
void use_vector_f32(bool only);

// Functions for the other files of this folder.
std::vector<const Micro*> machine_micros();  // of this architecture, the best first
const Micro* wide_micro();                   // widens in registers
const Micro* machine_f32();                  // null: vector_f32() is the best
const Micro& vector_f32();                   // of any instruction set
// Rounds whole vectors of n numbers as round_to_bf16 does (simd/convert.h) and says how many they
// were. Null: this machine has no instruction for it.
using RoundLow = std::int64_t (*)(const float* x, Low* y, std::int64_t n);
RoundLow machine_round();
// bf16 packed for them by the instruction set in use (low.cpp).
struct LowPacks {
  Pack pairs_12, pairs_32;  // [k / 2][lanes][2]
  Pack quads_6, quads_16;   // [k / 4][lanes][4]
  Pack rows_32;             // [lanes][k]
};
const LowPacks& low_packs();
// f32 likewise (f32.cpp), [k][lanes].
struct F32Packs {
  Pack lanes_6, lanes_16;
};
const F32Packs& f32_packs();

}  // namespace tessera::exec::cpu
