// Dim signatures: "btc,fc->btf" names the dims of every operand and result; a letter is one extent
// everywhere it stands.
// '*' stands for any run of dims (the same one everywhere), '!' after a letter or '*' says that it
// may not be sharded.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/type.h"

namespace tessera::ir {

struct Signature {
  struct Operand {
    std::string letters;  // '*' included, '!' removed
    std::string pinned;   // the letters that carried '!'
  };
  std::vector<Operand> in, out;
};
Signature parse_signature(std::string_view text);  // CHECKs its form
// The same, parsed once: every pass asks for the signatures of all equations. What it gives is
// valid until thousands of other ones were asked for.
const Signature& parsed_signature(std::string_view text);

// Binds every letter to an extent and gives the shapes of the results; CHECKs ranks and extents
// with readable messages.
std::vector<Shape> infer_shapes(std::string_view signature, std::span<const Type> in);

// Letters of operand or result i as they stand in an explicit signature without '*' ("btc,c->btc",
// 1 -> "c").
std::string letters_in(std::string_view signature, int operand);
std::string letters_out(std::string_view signature, int result = 0);

// abc... for a rank.
std::string alphabet(int rank);

}  // namespace tessera::ir
