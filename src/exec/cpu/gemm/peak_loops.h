// Loops of multiply-adds of bf16 and i8 in registers and the first-level cache: the most that an
// instruction gives, which products of these types are held against. There is one for each
// instruction that a micro-kernel (micro.h, i8.h) of this machine uses.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::exec::cpu {

struct PeakLoop {
  std::string_view instruction;
  std::int64_t rounds = 0;  // of about a millisecond
  // Runs `rounds` rounds on the calling thread and returns the operations done: an addition and a
  // multiplication are two.
  double (*run)(std::int64_t rounds) = nullptr;
};

// Empty: the machine has no such instruction, and its micro-kernels multiply in f32.
std::vector<PeakLoop> low_peak_loops();
std::vector<PeakLoop> i8_peak_loops();

}  // namespace tessera::exec::cpu
