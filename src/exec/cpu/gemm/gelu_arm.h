// bf16 tiles of BFMMLA with gelu, which is looked up (simd/gelu_table.h): loads and shifts that run
// beside the multiplications of the next tile. By itself a tile's 96 numbers take 110 cycles, as
// long as k of 72 is multiplied; between its instructions 40 (Neoverse V1).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "exec/cpu/gemm/finish_arm.h"
#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/gemm/mmla_arm.h"
#include "exec/cpu/simd/gelu_table.h"

namespace tessera::exec::cpu {

// A tile whose numbers are looked up while the sums of another are made, and how many groups of k
// are summed without that; pitches are bytes. The asm statement below reads it by these offsets.
struct LookUp {
  std::int64_t groups;
  const Low* from;
  Low* to;
  std::int64_t from_pitch, to_pitch;
  const std::uint16_t* table;
};
static_assert(offsetof(LookUp, from) == 8 && offsetof(LookUp, from_pitch) == 24 &&
              offsetof(LookUp, table) == 40);
// Groups of k that look-ups run beside: one for four columns of each row.
inline constexpr std::int64_t looking_groups = mmla_rows * mmla_columns / 4;

// clang-format off
// Group `n` of four, and four numbers of a row (x9: from, x10: to, x11: the table).
#define TESSERA_LOOKING_GROUP(n)                                  \
  "ldp q0, q1, [%[a], #" n " * 48]\n"                             \
  "ldr q2, [%[a], #" n " * 48 + 32]\n"                            \
  "ldp q4, q5, [%[b], #" n " * 128 - 1024]\n"                     \
  "ldp q6, q7, [%[b], #" n " * 128 - 992]\n"                      \
  "ldr x12, [x9, #" n " * 8]\n"                                   \
  TESSERA_MMLA_COLUMNS("bfmmla", "8h", "0", "8", "16", "4")       \
  "and x13, x12, #0xffff\n"                                       \
  "ubfx x14, x12, #16, #16\n"                                     \
  TESSERA_MMLA_COLUMNS("bfmmla", "8h", "1", "9", "17", "5")       \
  "ldp q4, q5, [%[b], #" n " * 128 - 960]\n"                      \
  "ubfx x15, x12, #32, #16\n"                                     \
  "lsr x12, x12, #48\n"                                           \
  TESSERA_MMLA_COLUMNS("bfmmla", "8h", "2", "10", "18", "6")      \
  "ldrh w13, [x11, x13, lsl #1]\n"                                \
  TESSERA_MMLA_COLUMNS("bfmmla", "8h", "3", "11", "19", "7")      \
  "ldp q6, q7, [%[b], #" n " * 128 - 928]\n"                      \
  "ldrh w14, [x11, x14, lsl #1]\n"                                \
  TESSERA_MMLA_COLUMNS("bfmmla", "8h", "4", "12", "20", "4")      \
  "ldrh w15, [x11, x15, lsl #1]\n"                                \
  "ldrh w12, [x11, x12, lsl #1]\n"                                \
  TESSERA_MMLA_COLUMNS("bfmmla", "8h", "5", "13", "21", "5")      \
  "orr w13, w13, w14, lsl #16\n"                                  \
  TESSERA_MMLA_COLUMNS("bfmmla", "8h", "6", "14", "22", "6")      \
  "orr w15, w15, w12, lsl #16\n"                                  \
  TESSERA_MMLA_COLUMNS("bfmmla", "8h", "7", "15", "23", "7")      \
  "stp w13, w15, [x10, #" n " * 8]\n"

// TESSERA_MMLA_SUMS over look.groups and looking_groups more, the last of them with look-ups.
#define TESSERA_LOOKING_SUMS(s, look, a_panel, b_panel)                                    \
  do {                                                                                     \
    const std::int64_t skipped = -look.groups & 15;                                        \
    const std::byte* a_at = static_cast<const std::byte*>(a_panel) - skipped * 48;         \
    const std::byte* b_at = static_cast<const std::byte*>(b_panel) - skipped * 128 + 1024; \
    asm("ldp x8, x9, [%[look]]\n"                                                          \
        "ldp x10, x6, [%[look], #16]\n"                                                    \
        "ldp x7, x11, [%[look], #32]\n"                                                    \
        TESSERA_MMLA_ZEROS                                                                 \
        "cbz x8, 2f\n"                                                                     \
        "neg x16, x8\n"                                                                    \
        "and x16, x16, #15\n"                                                              \
        "add x8, x8, x16\n"                                                                \
        "mov x17, #120\n"                                                                  \
        "mul x16, x16, x17\n"                                                              \
        "adr x17, 1f\n"                                                                    \
        "add x16, x16, x17\n"                                                              \
        "br x16\n"                                                                         \
        ".p2align 5\n"                                                                     \
        "1:\n"                                                                             \
        TESSERA_MMLA_FOUR("bfmmla", "8h", "0") TESSERA_MMLA_FOUR("bfmmla", "8h", "4")      \
        TESSERA_MMLA_FOUR("bfmmla", "8h", "8") TESSERA_MMLA_FOUR("bfmmla", "8h", "12")     \
        "add %[a], %[a], #768\n"                                                           \
        "add %[b], %[b], #2048\n"                                                          \
        "subs x8, x8, #16\n"                                                               \
        "b.gt 1b\n"                                                                        \
        "2:\n"                                                                             \
        "mov x8, #6\n"                                                                     \
        ".p2align 5\n"                                                                     \
        "3:\n"                                                                             \
        TESSERA_LOOKING_GROUP("0") TESSERA_LOOKING_GROUP("1")                              \
        TESSERA_LOOKING_GROUP("2") TESSERA_LOOKING_GROUP("3")                              \
        "add %[a], %[a], #192\n"                                                           \
        "add %[b], %[b], #512\n"                                                           \
        "add x9, x9, x6\n"                                                                 \
        "add x10, x10, x7\n"                                                               \
        "subs x8, x8, #1\n"                                                                \
        "b.gt 3b\n"                                                                        \
        : TESSERA_MMLA_OUTS(s), [a] "+r"(a_at), [b] "+r"(b_at)                             \
        : [look] "r"(&look)                                                                \
        : TESSERA_MMLA_USED, "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14",    \
          "x15", "x16", "x17");                                                            \
  } while (false)
// clang-format on
static_assert(mmla_rows == 6, "turns of the loop above");

// Tiles below each other, all columns of which count. Where there is no `before`, a tile's rounded
// sums wait in a room of their own.
TESSERA_BFMMLA inline void tiles_gelu(std::int64_t k, const void* a, const void* b, TileOut out,
                                      Finish f) {
  constexpr auto rows = std::make_integer_sequence<int, mmla_rows>();
  constexpr std::int64_t line = mmla_columns, bytes = sizeof(Low);
  Low room[mmla_rows * mmla_columns];
  const std::uint16_t* const table = gelu_table(f.act == Act::gelu_tanh);
  LookUp look{.groups = k / 4 - looking_groups,
              .from = nullptr,
              .to = nullptr,
              .from_pitch = 0,
              .to_pitch = f.pitch * bytes,
              .table = table};
  while (out.rows > 0) {
    const bool whole = out.rows >= mmla_rows;
    out.next.fetch_share();
    fetch_low(rows, f);
    float32x4_t sums[mmla_sums];
    if (look.from && look.groups >= 0)
      TESSERA_LOOKING_SUMS(sums, look, a, b);
    else
      TESSERA_MMLA_SUMS("bfmmla", "8h", sums, k / 4, a, b);
    const bool stays = f.before && whole;
    const Finish rounded{
        .offset = f.offset, .low = stays ? f.before : room, .pitch = stays ? f.pitch : line};
    put_low_tile<Ends::plain>(sums, rounded);
    if (f.before && !whole) copy_rows(room, out.rows, f.before, f.pitch);
    look.from = rounded.low;
    look.from_pitch = rounded.pitch * bytes;
    look.to = f.low;
    a = static_cast<const Low*>(a) + k * mmla_rows;
    // A tile that no other follows is looked up at once.
    if (out.rows <= mmla_rows || look.groups < 0)
      for (std::int64_t row = 0; row < std::min<std::int64_t>(out.rows, mmla_rows); ++row)
        look_up(table, rounded.low + row * rounded.pitch, f.low + row * f.pitch, mmla_columns);
    next_tile(out, f);
  }
}

TESSERA_BFMMLA inline void tile_low_bfmmla(std::int64_t k, const void* a, const void* b,
                                           const TileOut& out, const Finish& f) {
  const bool more = out.beta != 0, rows = more || f.low_addend, act = f.act != Act::none;
  if (out.cols < mmla_columns || (rows && act)) return tiles_low<Ends::part>(k, a, b, out, f);
  if (act) return tiles_gelu(k, a, b, out, f);
  if (rows && !more) return tiles_low<Ends::addend>(k, a, b, out, f);
  if (rows && f.low_addend) return tiles_low<Ends::more_and_addend>(k, a, b, out, f);
  if (rows) return tiles_low<Ends::more>(k, a, b, out, f);
  if (f.scale || f.relu) return tiles_low<Ends::scaled>(k, a, b, out, f);
  if (f.offset) return tiles_low<Ends::plain>(k, a, b, out, f);
  tiles_low<Ends::bare>(k, a, b, out, f);
}

}  // namespace tessera::exec::cpu
