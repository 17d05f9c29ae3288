#include "ir/signature.h"

#include <algorithm>
#include <array>
#include <functional>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace tessera::ir {
namespace {

std::vector<Signature::Operand> parse_side(std::string_view side, std::string_view whole) {
  std::vector<Signature::Operand> operands(1);
  for (char c : side) {
    Signature::Operand& last = operands.back();
    if (c == ',') {
      operands.emplace_back();
    } else if (c == '!') {
      CHECK(!last.letters.empty(), "'!' follows a dim in signature \"" + std::string(whole) + "\"");
      last.pinned += last.letters.back();
    } else {
      CHECK(c == '*' || (c >= 'a' && c <= 'z'),
            "a signature has letters a-z, '*', '!' and ',': \"" + std::string(whole) + "\"");
      CHECK(last.letters.find(c) == std::string::npos,
            "a dim stands twice in one operand of \"" + std::string(whole) + "\"");
      last.letters += c;
    }
  }
  return operands;
}

}  // namespace

Signature parse_signature(std::string_view text) {
  const auto arrow = text.find("->");
  CHECK(arrow != text.npos, "a signature has '->': \"" + std::string(text) + "\"");
  return {parse_side(text.substr(0, arrow), text), parse_side(text.substr(arrow + 2), text)};
}

const Signature& parsed_signature(std::string_view text) {
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const {
      return std::hash<std::string_view>()(key);
    }
  };
  using Known = std::unordered_map<std::string, Signature, Hash, std::equal_to<>>;
  constexpr std::size_t most = 4096;  // texts from outside cannot fill the memory
  thread_local Known known, before;   // `before` keeps what was given lately
  if (const auto found = known.find(text); found != known.end()) return found->second;
  if (known.size() >= most) before = std::exchange(known, {});
  return known.emplace(std::string(text), parse_signature(text)).first->second;
}

namespace {

// The extents that letters and '*' stand for.
struct Extents {
  std::array<std::int64_t, 26> of{};  // by letter; below 0: not bound
  Shape star;
  bool star_bound = false;

  Extents() { of.fill(-1); }
  std::int64_t& operator[](char letter) { return of[static_cast<std::size_t>(letter - 'a')]; }
};

// `got` says what was found, for an error.
template <class Got>
void bind_letters(Extents& extents, const std::string& letters, const Shape& shape,
                  const Got& got) {
  const bool starred = letters.find('*') != std::string::npos;
  CHECK(starred ? shape.size() + 1 >= letters.size() : shape.size() == letters.size(), got());
  std::size_t at = 0;
  for (char c : letters) {
    if (c == '*') {
      const std::size_t run = shape.size() + 1 - letters.size();
      const auto first = shape.begin() + static_cast<std::ptrdiff_t>(at);
      const auto last = first + static_cast<std::ptrdiff_t>(run);
      CHECK(
          !extents.star_bound || std::equal(first, last, extents.star.begin(), extents.star.end()),
          got() + " but '*' is " + to_string(extents.star));
      if (!extents.star_bound) extents.star.assign(first, last);
      extents.star_bound = true;
      at += run;
    } else {
      std::int64_t& extent = extents[c];
      CHECK(extent < 0 || extent == shape[at],
            got() + " but " + c + " is " + std::to_string(extent));
      extent = shape[at++];
    }
  }
}

}  // namespace

std::vector<Shape> infer_shapes(std::string_view text, std::span<const Type> in) {
  const Signature& sig = parsed_signature(text);
  const auto quoted = [&] { return "\"" + std::string(text) + "\""; };
  CHECK(sig.in.size() == in.size() || (in.empty() && text.starts_with("->")),
        quoted() + " takes " + std::to_string(sig.in.size()) + " operands, got " +
            std::to_string(in.size()));
  Extents extents;
  for (std::size_t i = 0; i < in.size(); ++i)
    bind_letters(extents, sig.in[i].letters, in[i].shape, [&] {
      return "operand " + std::to_string(i) + " of " + quoted() + " is " + to_string(in[i].shape);
    });
  std::vector<Shape> out;
  out.reserve(sig.out.size());
  for (const Signature::Operand& result : sig.out) {
    Shape& shape = out.emplace_back();
    shape.reserve(result.letters.size() + extents.star.size());
    for (char c : result.letters) {
      if (c == '*') {
        shape.insert(shape.end(), extents.star.begin(), extents.star.end());
      } else {
        CHECK(extents[c] >= 0,
              std::string("dim ") + c + " of the result of " + quoted() + " stands in no operand");
        shape.push_back(extents[c]);
      }
    }
  }
  return out;
}

std::string letters_in(std::string_view text, int operand) {
  const Signature& sig = parsed_signature(text);
  CHECK(static_cast<std::size_t>(operand) < sig.in.size(),
        "operand out of range in \"" + std::string(text) + "\"");
  return sig.in[static_cast<std::size_t>(operand)].letters;
}

std::string letters_out(std::string_view text, int result) {
  return parsed_signature(text).out.at(static_cast<std::size_t>(result)).letters;
}

std::string alphabet(int rank) {
  return std::string("abcdefghijklmnopqrstuvwxyz").substr(0, static_cast<std::size_t>(rank));
}

}  // namespace tessera::ir
