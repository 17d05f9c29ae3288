// Plans in which values rest away from the device, and their steps in words.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/plan.h"

namespace tessera::test {

// Works on a program's text, which is printed as it is written.
inline plan::Plan plan_with_moves(const std::string& text, bool overlap) {
  const ir::Program p = ir::parse(text);
  ir::verify(p);
  EXPECT_EQ(ir::print(p), text);
  return plan::lower(p, 0, {.shared_half = 0}, overlap);
}

// "fetch m+256", "adamw": what moves, from which element on. `waits`: a move that the device waits
// for says so.
inline std::vector<std::string> words_of(const plan::Plan& plan, bool waits = false) {
  std::vector<std::string> out;
  for (const plan::Step& s : plan.steps) {
    const plan::Slot& away = s.move == plan::Move::fetch ? s.in[0] : s.out[0];
    const auto name = [&] {
      return plan.persistent[static_cast<std::size_t>(away.base - 1)].name + "+" +
             std::to_string(away.offset / 4) + (waits && s.stream != 1 ? ", and waits" : "");
    };
    out.push_back(s.move == plan::Move::fetch  ? "fetch " + name()
                  : s.move == plan::Move::stow ? "stow " + name()
                                               : std::string(ir::name(s.op)));
  }
  return out;
}

}  // namespace tessera::test
