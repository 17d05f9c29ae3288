// With TESSERA_PORTABLE set, a test program runs its vector kernels with the instruction set that
// every machine of the architecture has. The program fails if they ran with another one.
#include <gtest/gtest.h>

#include <cstdlib>

#include "exec/cpu/simd/instructions.h"

namespace tessera::test::portable_instructions {
namespace {

class Portable : public ::testing::Environment {
 public:
  void SetUp() override {
    if (!asked()) return;
    exec::cpu::use_portable_instructions();
    expect_portable();
  }
  void TearDown() override {
    if (asked()) expect_portable();
  }

 private:
  static bool asked() { return std::getenv("TESSERA_PORTABLE") != nullptr; }
  static void expect_portable() {
    const std::string chosen = exec::cpu::instruction_set();
    ASSERT_EQ(chosen, exec::cpu::portable_instruction_set())
        << "TESSERA_PORTABLE is set, but the kernels run with " << chosen;
    ASSERT_FALSE(chosen.starts_with("AVX"))
        << "the fallback needs " << chosen << ", which not every x86-64 machine has";
  }
};

[[maybe_unused]] const auto* const portable = ::testing::AddGlobalTestEnvironment(new Portable);

}  // namespace
}  // namespace tessera::test::portable_instructions
