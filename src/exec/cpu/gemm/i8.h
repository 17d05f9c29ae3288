// Products of signed bytes: C = A B in i32, exact as long as k is at most 2^17 - 1 (that many
// products of -128 and -128 fit an i32). B is always packed, once for all products with it; what a
// packed B looks like is the micro-kernel's. Convention: sums are exact, so every micro-kernel
// gives the same bits.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "exec/cpu/gemm/micro.h"

namespace tessera::exec::cpu {

inline constexpr std::int64_t i8_most_k = (std::int64_t{1} << 17) - 1;
// Bounds that hold for every micro-kernel of i8 (micro.h has those of bf16).
inline constexpr std::int64_t i8_group = 64, i8_rows = 32;
// Panels of A, 64-byte aligned: as many as a block (micro.h) has, or one.
inline constexpr std::int64_t i8_a_block = 264 * 1024, i8_panel_bytes = i8_a_block;

// Bytes of B, k x n, packed: whole panels of columns, each with all of k and one i32 per column.
std::int64_t packed_i8_bytes(std::int64_t k, std::int64_t n);
// Columns [n0, n0 + n_size) of B, n0 a multiple of panel_columns; tasks are independent. rs_ is the
// distance between rows, cs_ between columns, in elements.
void pack_i8(std::int64_t k, std::int64_t n0, std::int64_t n_size, const std::int8_t* b,
             std::int64_t rs_b, std::int64_t cs_b, std::int8_t* packed);
// C = A B for m rows of A and columns [n0, n0 + n) of the packed B, n0 a multiple of panel_columns;
// C's columns are contiguous; `panel` has i8_panel_bytes.
void gemm_i8(std::int64_t m, std::int64_t n, std::int64_t k, const std::int8_t* a,
             std::int64_t rs_a, std::int64_t cs_a, const std::int8_t* packed, std::int64_t n0,
             std::int32_t* c, std::int64_t rs_c, void* panel);
// Whether the micro-kernel finishes such a product itself, and that product: sums become numbers
// and end as `finish` says, which has scales, offsets and a `low` or `bytes`, while the next sums
// are made.
// Pairs of A's numbers are aligned.
bool finishes_i8(std::int64_t k, std::int64_t rs_a, std::int64_t cs_a);
void finished_i8(std::int64_t m, std::int64_t n, std::int64_t k, const std::int8_t* a,
                 std::int64_t rs_a, const std::int8_t* packed, std::int64_t n0,
                 const Finish& finish, void* panel);

// Micro-kernels that this machine can run, the best first; the last one runs everywhere.
std::vector<const Micro*> i8_micros();
const Micro& micro_i8();  // the one in use
// Which of them is used from now on, by its name; empty: the best. False: this machine has none.
bool use_i8_micro(std::string_view name);

// Functions for the other files of this folder.
std::vector<const Micro*> machine_i8_micros();  // of this architecture, the best first
const Micro* portable_i8_micro();
// [k / group][lanes][group], and the same of `lanes` rows one after the other.
void pack_i8_groups(const Lanes& from, std::int64_t lanes, std::int64_t group, std::int8_t* panel);

}  // namespace tessera::exec::cpu
