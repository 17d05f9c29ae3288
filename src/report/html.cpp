#include "report/html.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <filesystem>

#include "base/printable.h"
#include "files/text.h"
#include "report/console.h"

namespace tessera::report {
namespace {

struct Letter {
  char32_t code = 0xFFFD;
  std::size_t bytes = 1;
};

// The character at `at`; what is no UTF-8 (too long, a surrogate, cut off) is one U+FFFD for one
// byte.
Letter letter_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first >= 0xF0 && first < 0xF5   ? 4
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xC2 && first < 0xE0 ? 2
                                                             : 0;
  if (length == 0 || at + length > text.size()) return {};
  char32_t code = first & (0xFF >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(at + i) & 0x3F);
  }
  constexpr std::array<char32_t, 5> least = {0, 0, 0x80, 0x800, 0x10000};
  if (code < least[length] || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF) return {};
  return {code, length};
}

void put(std::string& out, char32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// The text shown for a character, not yet escaped: itself in most cases.
std::string shown(char32_t c) {
  if (c == '\n' || c == '\t' || c == '\r') return " ";
  std::string out;
  if (c < 0x20)
    put(out, 0x2400 + c);  // the picture of it: ␛
  else if (c == 0x7F)
    put(out, 0x2421);
  else if ((c >= 0x80 && c < 0xA0) || (c & 0xFFFE) == 0xFFFE || (c >= 0xFDD0 && c <= 0xFDEF))
    put(out, 0xFFFD);
  else if (steers(c))
    out = fmt::format("[U+{:04X}]", static_cast<std::uint32_t>(c));
  else
    put(out, c);
  return out;
}

}  // namespace

std::string escape(std::string_view text, std::size_t most) {
  std::string out;
  std::size_t letters = 0;
  for (std::size_t at = 0; at < text.size(); ++letters) {
    if (letters == most) return out + "…";
    const auto [code, bytes] = letter_at(text, at);
    at += bytes;
    switch (code) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += shown(code);
    }
  }
  return out;
}

double columns_of(std::string_view text) {
  double columns = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, bytes] = letter_at(text, at);
    at += bytes;
    columns += code >= 0xA0 && steers(code)                                           ? 8
               : code >= 0x1100 && code != 0x2026 && (code < 0x2000 || code > 0x2BFF) ? 2
                                                                                      : 1;
  }
  return columns;
}

std::string shorten(std::string_view text, std::size_t most) {
  std::string out;
  std::size_t letters = 0, before_last = 0;
  for (std::size_t at = 0; at < text.size(); ++letters) {
    if (letters == most) return out.substr(0, before_last) + "…";
    const auto [code, bytes] = letter_at(text, at);
    before_last = out.size();
    put(out, code);
    at += bytes;
  }
  return out;
}

std::string slug(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
      out += c;
    else if (c >= 'A' && c <= 'Z')
      out += static_cast<char>(c - 'A' + 'a');
    else if (!out.empty() && out.back() != '-')
      out += '-';
    if (out.size() == 40) break;
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out.empty() ? "part" : out;
}

std::string three(double v) {
  if (!std::isfinite(v)) return "–";
  const double size = std::abs(v);
  if (size == 0) return "0";
  if (size >= 1e15 || size < 1e-4) return fmt::format("{:.2e}", v);
  if (size >= 999.5) return with_commas(static_cast<std::int64_t>(std::llround(v)));
  int decimals = 2 - static_cast<int>(std::floor(std::log10(size)));
  std::string out = fmt::format("{:.{}f}", v, std::max(0, decimals));
  if (decimals > 0 && std::abs(std::stod(out)) >= std::pow(10, 3 - decimals))
    out = fmt::format("{:.{}f}", v, decimals - 1);  // 9.999
  return out;
}

std::string plain_number(double v) {
  return std::isfinite(v) && v == std::floor(v) && std::abs(v) < 1e9 ? fmt::format("{:.0f}", v)
                                                                     : three(v);
}
std::string percent(double share) {
  if (std::abs(share) < 1e-9) share = 0;  // what is left of a difference of equal times
  return std::isfinite(share) ? three(100 * share) + "%" : "–";
}
std::string accuracy_text(double share) {
  return std::isfinite(share) ? fmt::format("{:.2f}%", 100 * share) : "–";
}

std::string byte_text(double bytes) {
  if (!std::isfinite(bytes)) return "–";
  static constexpr std::array<const char*, 5> units = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (std::abs(bytes) >= 999.5 && unit + 1 < units.size()) {
    bytes /= 1000;
    ++unit;
  }
  return three(bytes) + " " + units[unit];
}

std::string seconds_text(double s) {
  if (!std::isfinite(s)) return "–";
  if (std::abs(s) < 0.9995e-3) return three(1e6 * s) + " µs";
  if (std::abs(s) < 0.9995) return three(1e3 * s) + " ms";
  if (std::abs(s) < 600) return three(s) + " s";
  return duration(s);
}

std::string document(const Shell& shell, const std::string& body) {
  std::string contents;
  for (const Entry& e : shell.contents)
    contents += fmt::format("<li><a href=\"#{}\">{}</a></li>", escape(e.id), escape(e.name, 60));
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; img-src data:; base-uri "
      "'none'; form-action 'none'\"/>\n{}"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<meta "
      "name=\"color-scheme\" content=\"light dark\"/>\n"
      "<meta name=\"referrer\" "
      "content=\"no-referrer\"/>\n<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n"
      "<nav><p "
      "class=\"brand\">Tessera</p><ul>{}</ul></nav>\n<main>\n{}\n</main>\n</body>\n</html>\n",
      shell.refresh ? "<meta http-equiv=\"refresh\" content=\"3\"/>\n" : "",
      escape(shell.title, 200), page_style(), contents, body);
}

std::string base64(std::string_view in) {
  static constexpr char digits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((in.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < in.size(); i += 3) {
    std::uint32_t bits = 0;
    const std::size_t have = std::min<std::size_t>(3, in.size() - i);
    for (std::size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (k < have ? static_cast<unsigned char>(in[i + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k) out += k <= have ? digits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

void write_whole(const std::string& path, std::string_view bytes) {
  std::error_code error;  // what went wrong the file says
  std::filesystem::create_directories(std::filesystem::absolute(path).parent_path(), error);
  files::write_atomically(path, bytes);
}

}  // namespace tessera::report
