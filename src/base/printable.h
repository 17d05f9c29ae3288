// Text from outside made fit for a terminal or a page: nothing in it can move a cursor, change a colour or turn lines around.
// Convention: printable() is for a piece of a line, so line ends are made visible, too.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

// Bytes of the character at the front of `text`; 0 when it is empty or not valid UTF-8.
std::size_t utf8_length(std::string_view text);

// Whether one character of valid UTF-8 only shows something; what is not is named below.
bool is_printable(std::string_view character);
// Control characters (C0, DEL, C1) and what reverses the direction of text (U+200E, U+200F, U+202A-202E, U+2066-2069) or breaks lines
// (U+2028, U+2029) become visible escapes ("\x1b", "\u202e"); a byte that is no UTF-8 becomes U+FFFD. At most `most` characters are kept.
std::string printable(std::string_view text, std::size_t most = 400);

// A word for a POSIX shell: as it is where that is safe, else in single quotes.
std::string shell_word(std::string_view word);

}  // namespace tessera
