#include "ir/signature.h"

#include <map>

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
      CHECK(c == '*' || (c >= 'a' && c <= 'z'), "a signature has letters a-z, '*', '!' and ',': \"" + std::string(whole) + "\"");
      CHECK(last.letters.find(c) == std::string::npos, "a dim stands twice in one operand of \"" + std::string(whole) + "\"");
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

std::vector<Shape> infer_shapes(std::string_view text, std::span<const Type> in) {
  const Signature sig = parse_signature(text);
  const std::string quoted = "\"" + std::string(text) + "\"";
  CHECK(sig.in.size() == in.size() || (in.empty() && text.starts_with("->")),
        quoted + " takes " + std::to_string(sig.in.size()) + " operands, got " + std::to_string(in.size()));
  std::map<char, std::int64_t> extents;
  Shape star;
  bool star_bound = false;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::string& letters = sig.in[i].letters;
    const Shape& shape = in[i].shape;
    const bool starred = letters.find('*') != std::string::npos;
    const std::string got = "operand " + std::to_string(i) + " of " + quoted + " is " + to_string(shape);
    CHECK(starred ? shape.size() + 1 >= letters.size() : shape.size() == letters.size(), got);
    std::size_t at = 0;
    for (char c : letters) {
      if (c == '*') {
        const std::size_t run = shape.size() + 1 - letters.size();
        const Shape here(shape.begin() + static_cast<std::ptrdiff_t>(at), shape.begin() + static_cast<std::ptrdiff_t>(at + run));
        CHECK(!star_bound || here == star, got + " but '*' is " + to_string(star));
        star = here, star_bound = true, at += run;
      } else {
        const auto [it, fresh] = extents.try_emplace(c, shape[at]);
        CHECK(fresh || it->second == shape[at], got + " but " + c + " is " + std::to_string(it->second));
        ++at;
      }
    }
  }
  std::vector<Shape> out;
  for (const Signature::Operand& result : sig.out) {
    Shape& shape = out.emplace_back();
    for (char c : result.letters) {
      if (c == '*') {
        shape.insert(shape.end(), star.begin(), star.end());
      } else {
        CHECK(extents.contains(c), std::string("dim ") + c + " of the result of " + quoted + " stands in no operand");
        shape.push_back(extents[c]);
      }
    }
  }
  return out;
}

std::string letters_in(std::string_view text, int operand) {
  const Signature sig = parse_signature(text);
  CHECK(static_cast<std::size_t>(operand) < sig.in.size(), "operand out of range in \"" + std::string(text) + "\"");
  return sig.in[static_cast<std::size_t>(operand)].letters;
}

std::string letters_out(std::string_view text, int result) {
  return parse_signature(text).out.at(static_cast<std::size_t>(result)).letters;
}

std::string alphabet(int rank) { return std::string("abcdefghijklmnopqrstuvwxyz").substr(0, static_cast<std::size_t>(rank)); }

}  // namespace tessera::ir
