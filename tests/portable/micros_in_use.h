// Products of bf16 and i8 are multiplied as before when a test that chose something else has ended.
// That need not be the best that the machine has (instructions.cpp).
#pragma once

#include <string>

#include "exec/cpu/gemm/i8.h"
#include "exec/cpu/gemm/micro.h"

namespace tessera::test {

class MicrosInUse {
 public:
  MicrosInUse() : low_(exec::cpu::micro_low().name), i8_(exec::cpu::micro_i8().name) {}
  ~MicrosInUse() {
    exec::cpu::use_low_micro(low_);
    exec::cpu::use_i8_micro(i8_);
  }
  MicrosInUse(const MicrosInUse&) = delete;
  MicrosInUse& operator=(const MicrosInUse&) = delete;

 private:
  std::string low_, i8_;
};

}  // namespace tessera::test
