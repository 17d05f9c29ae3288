// Text from outside made fit for a terminal or a page: nothing in it can move a cursor, change a
// colour or turn lines around. Convention: base/say.h applies this to all that the program prints;
// code elsewhere calls it where a line end must show, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// Bytes of the character at the front of `text`; 0 when it is empty or not valid UTF-8.
std::size_t utf8_length(std::string_view text);

// Whether a character does something else than show itself: control characters (C0, DEL, C1), what
// turns the direction of text or hides itself (U+061C, U+200B-200F, U+202A-202E, U+2060-206F,
// U+00AD, U+FEFF, U+FFF9-FFFB, tags), what breaks lines (U+2028, U+2029), and code points that are
// no characters.
bool steers(std::uint32_t code);
std::uint32_t code_of(std::string_view character);  // of one character of valid UTF-8
// Whether one character of valid UTF-8 only shows something.
bool is_printable(std::string_view character);

// For a piece of a line. What steers becomes a visible escape ("\x1b", "\n", "\u202e"), and so does
// a byte that is no UTF-8
// ("\xff"). At most `most` characters are kept.
std::string printable(std::string_view text, std::size_t most = 400);
// The same for a text of several lines, all of it: its line ends stay.
std::string printable_lines(std::string_view text);
// A JSON document that says the same to a parser and that shows no character that steers: inside a
// string each of them is an escape ("\u009b"). Bytes that are no UTF-8 become U+FFFD.
std::string printable_json(std::string_view document);

// A word for a POSIX shell: as it is where that is safe, else in single quotes.
std::string shell_word(std::string_view word);

}  // namespace tessera
