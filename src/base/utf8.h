// Names that are not UTF-8: told from others, and shown so that they can be found.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

bool is_utf8(std::string_view text);

// As printable(), but a byte that is no UTF-8 is shown by its number ("caf\xe9").
std::string bytes_shown(std::string_view text);

}  // namespace tessera
