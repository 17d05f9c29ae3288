// Which products of a program eight bits are for, and how they read their factors.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "ir/program.h"

namespace tessera::transforms {

// How a product reads one of its factors: how many leading dims have to go to the end.
struct FactorRead {
  ir::Var factor = ir::none;
  std::string letters;
  std::size_t turn = 0;
};

using FactorReads = std::array<FactorRead, 2>;

// Both factors of a contract in a block of a transformer, each with what is summed at one end of
// its dims; nothing where it is no such product. Its extents do not matter.
std::optional<FactorReads> reads_in_blocks(const ir::Program& program, const ir::Eqn& e);
// Whether the library and the hardware take it: rows, columns and depth in multiples of 16.
bool in_granules(const ir::Program& program, const ir::Eqn& e, const FactorReads& reads);

}  // namespace tessera::transforms
