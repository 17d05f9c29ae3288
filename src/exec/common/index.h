// Index arithmetic by letters: a signature "btc,fc->btf" names the dims of each operand, and a
// letter an operand lacks has stride 0 in it. Convention: offsets and strides count elements of
// dense row-major tensors.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ir/signature.h"

namespace tessera::exec {

struct OperandLetters {
  std::vector<std::string> in;  // one string per operand
  std::string out;
};

inline OperandLetters parse_letters(std::string_view sig) {
  const ir::Signature parsed = ir::parse_signature(sig);
  OperandLetters letters;
  for (const ir::Signature::Operand& operand : parsed.in) letters.in.push_back(operand.letters);
  letters.out = parsed.out[0].letters;
  return letters;
}

inline bool has(std::string_view letters, char letter) {
  return letters.find(letter) != std::string_view::npos;
}

// The letters of `from` for which keep(letter), in their order.
template <class Keep>
std::string filter(std::string_view from, Keep keep) {
  std::string out;
  for (char letter : from)
    if (keep(letter)) out += letter;
  return out;
}

// A shape seen as [outer, extent, inner] around one dim; `unit`: what an element counts in `inner`
// (its bytes, say).
struct Around {
  std::int64_t outer = 1, extent = 1, inner = 1;
  Around(const ir::Shape& shape, int dim, std::int64_t unit = 1) : inner(unit) {
    for (int i = 0; i < static_cast<int>(shape.size()); ++i)
      (i < dim ? outer : i == dim ? extent : inner) *= shape[static_cast<std::size_t>(i)];
  }
};

inline std::vector<std::int64_t> strides(const ir::Shape& shape) {
  std::vector<std::int64_t> out(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0; step *= shape[i]) out[i] = step;
  return out;
}

// The extent of every letter, gathered from the operands that carry it.
class Extents {
 public:
  void bind(std::string_view letters, const ir::Shape& shape) {
    CHECK(letters.size() == shape.size(),
          "letters '" + std::string(letters) + "' for shape " + ir::to_string(shape));
    for (std::size_t i = 0; i < shape.size(); ++i) {
      std::int64_t& extent = of_[slot(letters[i])];
      CHECK(extent < 0 || extent == shape[i], "letter '" + std::string(1, letters[i]) +
                                                  "' is both " + std::to_string(extent) + " and " +
                                                  std::to_string(shape[i]));
      extent = shape[i];
    }
  }
  std::int64_t operator[](char letter) const { return of_[slot(letter)]; }
  std::int64_t product(std::string_view letters) const {
    std::int64_t n = 1;
    for (char letter : letters) n *= of_[slot(letter)];
    return n;
  }

 private:
  static std::size_t slot(char letter) { return static_cast<unsigned char>(letter) & 127u; }
  std::array<std::int64_t, 128> of_ = [] {
    std::array<std::int64_t, 128> a{};
    a.fill(-1);
    return a;
  }();
};

inline std::int64_t stride_of(std::string_view letters, const ir::Shape& shape, char letter) {
  const std::size_t at = letters.find(letter);
  return at == std::string_view::npos ? 0 : strides(shape)[at];
}

// For every index over the letters `over` (row-major, the last fastest): the offset of that element
// in an operand with these letters.
inline std::vector<std::int64_t> offsets(std::string_view over, const Extents& extents,
                                         std::string_view letters, const ir::Shape& shape) {
  std::vector<std::int64_t> out{0};
  for (char letter : over) {
    const std::int64_t n = extents[letter], stride = stride_of(letters, shape, letter);
    std::vector<std::int64_t> next;
    next.reserve(out.size() * static_cast<std::size_t>(n));
    for (std::int64_t base : out)
      for (std::int64_t i = 0; i < n; ++i) next.push_back(base + i * stride);
    out = std::move(next);
  }
  return out;
}

}  // namespace tessera::exec
