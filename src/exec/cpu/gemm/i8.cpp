#include "exec/cpu/gemm/i8.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace tessera::exec::cpu {

namespace {

using std::int64_t;

// Null: the portable one, of the instruction set that is in use when it is asked for.
std::atomic<const Micro*>& chosen_i8() {
  static std::atomic<const Micro*> micro = [] {
    const std::vector<const Micro*> machine = machine_i8_micros();
    return machine.empty() ? nullptr : machine.front();
  }();
  return micro;
}
int64_t padded_i8(int64_t k) { return (k + i8_group - 1) / i8_group * i8_group; }
// Bytes of a column of a panel: its numbers and the i32 that its sums begin with.
int64_t column_bytes(int64_t k) { return padded_i8(k) + int64_t{sizeof(std::int32_t)}; }

// Writes the values that the sums of a column begin with where A is packed as u8, 128 too large:
// -128 times the sum of the column.
void write_start(const Lanes& columns, int64_t count, std::int32_t* start) {
  const auto* const from = static_cast<const std::int8_t*>(columns.from);
  for (int64_t j = 0; j < count; ++j) {
    std::int32_t sum = 0;
    for (int64_t p = 0; p < columns.k && j < columns.used; ++p)
      sum += from[j * columns.lane_step + p * columns.k_step];
    start[j] = -128 * sum;
  }
}

}  // namespace

const Micro& micro_i8() {
  const Micro* const micro = chosen_i8().load(std::memory_order_relaxed);
  return micro ? *micro : *portable_i8_micro();
}

std::vector<const Micro*> i8_micros() {
  std::vector<const Micro*> out = machine_i8_micros();
  out.push_back(portable_i8_micro());
  return out;
}

bool use_i8_micro(std::string_view name) {
  const std::vector<const Micro*> machine = machine_i8_micros();
  const Micro* micro = machine.empty() ? nullptr : machine.front();
  if (!name.empty()) {
    const auto named = std::find_if(machine.begin(), machine.end(),
                                    [&](const Micro* m) { return m->name == name; });
    if (named == machine.end() && name != portable_i8_micro()->name) return false;
    micro = named == machine.end() ? nullptr : *named;
  }
  chosen_i8().store(micro, std::memory_order_relaxed);
  return true;
}

int64_t packed_i8_bytes(int64_t k, int64_t n) {
  return column_bytes(k) * ((n + panel_columns - 1) / panel_columns * panel_columns);
}

void pack_i8(int64_t k, int64_t n0, int64_t n_size, const std::int8_t* b, int64_t rs_b,
             int64_t cs_b, std::int8_t* packed) {
  const Micro& kernel = micro_i8();
  for (int64_t j = n0; j < n0 + n_size; j += kernel.columns) {
    const Lanes columns{.used = std::min(kernel.columns, n0 + n_size - j),
                        .k = k,
                        .padded = padded_i8(k),
                        .from = b + j * cs_b,
                        .lane_step = cs_b,
                        .k_step = rs_b};
    std::int8_t* const panel = packed + j * column_bytes(k);
    kernel.pack_b(columns, panel);
    write_start(columns, kernel.columns,
                reinterpret_cast<std::int32_t*>(panel + padded_i8(k) * kernel.columns));
  }
}

void gemm_i8(int64_t m, int64_t n, int64_t k, const std::int8_t* a, int64_t rs_a, int64_t cs_a,
             const std::int8_t* packed, int64_t n0, std::int32_t* c, int64_t rs_c, void* panel) {
  const Micro& kernel = micro_i8();
  if (k <= 0) {
    for (int64_t i = 0; i < m; ++i) std::fill_n(c + i * rs_c, n, 0);
    return;
  }
  if (kernel.begin) kernel.begin();
  const int64_t k_step = kernel.k_step(k);
  for (int64_t k0 = 0; k0 < k; k0 += k_step) {
    const int64_t k_size = std::min(k_step, k - k0), padded = kernel.padded(k_size);
    const int64_t a_bytes = padded * kernel.a_bytes, panels = kernel.a_panels(padded),
                  step = kernel.rows * panels;
    for (int64_t first = 0; first < m; first += step) {
      const int64_t end = std::min(m, first + step);
      const std::int8_t* const from = a + first * rs_a + k0 * cs_a;
      const bool in_place =
          kernel.row_major && cs_a == 1 && end == first + step && panels == 1 && padded == k_size;
      for (int64_t i = first; i < end && !in_place; i += kernel.rows)
        kernel.pack_a({.used = std::min(kernel.rows, m - i),
                       .k = k_size,
                       .padded = padded,
                       .from = from + (i - first) * rs_a,
                       .lane_step = rs_a,
                       .k_step = cs_a},
                      static_cast<std::byte*>(panel) + (i - first) / kernel.rows * a_bytes);
      for (int64_t j = 0; j < n; j += kernel.columns) {
        const std::int8_t* const b = packed + (n0 + j) * column_bytes(k);
        const std::byte* at = static_cast<const std::byte*>(panel);
        const bool last = j + kernel.columns >= n;
        NextPanel next(kernel,
                       last ? nullptr : b + kernel.columns * column_bytes(k) + k0 * kernel.b_bytes,
                       padded, (end - first + kernel.rows - 1) / kernel.rows);
        for (int64_t i = first; i < end; i += kernel.rows, at += a_bytes) {
          next.fetch_share();
          kernel.tile(
              padded, in_place ? static_cast<const void*>(from) : at, b + k0 * kernel.b_bytes,
              {.rs = rs_c,
               .rows = std::min(kernel.rows, m - i),
               .cols = std::min(kernel.columns, n - j),
               .beta = k0 == 0 ? 0.0f : 1.0f,
               .sums = c + i * rs_c + j,
               .start = reinterpret_cast<const std::int32_t*>(b + padded_i8(k) * kernel.columns),
               .a_pitch = in_place ? rs_a : padded});
        }
      }
    }
  }
  if (kernel.end) kernel.end();
}

bool finishes_i8(int64_t k, int64_t rs_a, int64_t cs_a) {
  const Micro& kernel = micro_i8();
  return kernel.product && cs_a == 1 && rs_a % 2 == 0 && k % 2 == 0 && k > 0 && k <= kernel.k_block;
}

void finished_i8(int64_t m, int64_t n, int64_t k, const std::int8_t* a, int64_t rs_a,
                 const std::int8_t* packed, int64_t n0, const Finish& finish, void* panel) {
  const Micro& kernel = micro_i8();
  if (kernel.begin) kernel.begin();
  kernel.product({.m = m,
                  .n = n,
                  .k = k / 2,
                  .a = reinterpret_cast<const Low*>(a),
                  .row = rs_a / 2,
                  .b = reinterpret_cast<const std::byte*>(packed + n0 * column_bytes(k)),
                  .b_pitch = panel_columns * column_bytes(k),
                  .finish = finish,
                  .room = panel});
  if (kernel.end) kernel.end();
}

void pack_i8_groups(const Lanes& l, int64_t lanes, int64_t group, std::int8_t* panel) {
  const auto* const from = static_cast<const std::int8_t*>(l.from);
  std::memset(panel, 0, static_cast<std::size_t>(l.padded * lanes));
  if (l.k_step == 1) {
    for (int64_t lane = 0; lane < l.used; ++lane)
      for (int64_t p = 0; p < l.k; p += group)
        std::memcpy(panel + p * lanes + lane * group, from + lane * l.lane_step + p,
                    static_cast<std::size_t>(std::min(group, l.k - p)));
    return;
  }
  for (int64_t p = 0; p < l.k; ++p)
    for (int64_t lane = 0; lane < l.used; ++lane)
      panel[p / group * group * lanes + lane * group + p % group] =
          from[lane * l.lane_step + p * l.k_step];
}

}  // namespace tessera::exec::cpu
