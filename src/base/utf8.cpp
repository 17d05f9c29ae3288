#include "base/utf8.h"

#include <fmt/format.h>

#include "base/printable.h"

namespace tessera {

bool is_utf8(std::string_view text) {
  for (std::size_t n = 0; !text.empty(); text.remove_prefix(n))
    if ((n = utf8_length(text)) == 0) return false;
  return true;
}

std::string bytes_shown(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t n = utf8_length(text);
    out += n == 0 ? fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]))
                  : printable(text.substr(0, n));
    text.remove_prefix(n == 0 ? 1 : n);
  }
  return out;
}

}  // namespace tessera
