#include "base/printable.h"

#include <fmt/format.h>

#include <cstdint>

namespace tessera {
namespace {

// How one character is shown; `text` is not empty, and loses it.
std::string take_shown(std::string_view& text) {
  const std::size_t n = utf8_length(text);
  const std::string_view character = text.substr(0, n == 0 ? 1 : n);
  text.remove_prefix(character.size());
  if (n == 0) return fmt::format("\\x{:02x}", static_cast<unsigned char>(character[0]));
  const std::uint32_t c = code_of(character);
  if (!steers(c)) return std::string(character);
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  return c < 0x80 ? fmt::format("\\x{:02x}", c) : fmt::format("\\u{:04x}", c);
}

}  // namespace

std::uint32_t code_of(std::string_view character) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(character[i]));
  };
  switch (character.size()) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
    case 3:
      return (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 |
             (byte(3) & 0x3f);
  }
}

bool steers(std::uint32_t c) {
  const auto within = [c](std::uint32_t first, std::uint32_t last) {
    return c >= first && c <= last;
  };
  return c < 0x20 || within(0x7f, 0x9f) || c == 0xad || c == 0x61c || within(0x200b, 0x200f) ||
         within(0x2028, 0x202e) || within(0x2060, 0x206f) || c == 0xfeff ||
         within(0xfff9, 0xfffb) || within(0xe0000, 0xe007f) || (c & 0xfffe) == 0xfffe ||
         within(0xfdd0, 0xfdef);
}

bool is_printable(std::string_view character) {
  return !character.empty() && !steers(code_of(character));
}

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char b = byte(0);
  if (b < 0x80) return 1;
  const std::size_t n = b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : 2;
  if (b < 0xc2 || b > 0xf4 || text.size() < n) return 0;
  for (std::size_t i = 1; i < n; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // Overlong forms, surrogates, and what lies past U+10FFFF.
  if ((b == 0xe0 && byte(1) < 0xa0) || (b == 0xed && byte(1) > 0x9f) ||
      (b == 0xf0 && byte(1) < 0x90) || (b == 0xf4 && byte(1) > 0x8f))
    return 0;
  return n;
}

std::string printable(std::string_view text, std::size_t most) {
  std::string out;
  for (std::size_t shown = 0; !text.empty(); ++shown) {
    if (shown == most) return out + "...";
    out += take_shown(text);
  }
  return out;
}

std::string printable_lines(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (text[0] == '\n') {
      out += '\n';
      text.remove_prefix(1);
    } else {
      out += take_shown(text);
    }
  }
  return out;
}

std::string printable_json(std::string_view document) {
  std::string out;
  while (!document.empty()) {
    const std::size_t n = utf8_length(document);
    const std::uint32_t c = n == 0 ? 0xfffd : code_of(document.substr(0, n));
    if (n == 0) {
      out += "\ufffd";
    } else if (c == '\n' || !steers(c)) {
      out += document.substr(0, n);
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((c - 0x10000) >> 10),
                         0xdc00 + ((c - 0x10000) & 0x3ff));
    }
    document.remove_prefix(n == 0 ? 1 : n);
  }
  return out;
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view safe =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(safe) == word.npos) return std::string(word);
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace tessera
