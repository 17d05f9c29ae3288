// Text on a page: what makes any string harmless, numbers as people read them, and the shell of a
// page that needs no other file. Convention: whatever did not come from this room's own source
// passes through escape(); pages are also well-formed XML, so that a test can tell every tag that
// is ours from one that is not. There is no script in them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::report {

// For text and for attributes in double quotes. Bytes that are no UTF-8 become U+FFFD; control
// characters and those that turn or hide text (bidirectional overrides, zero widths) become
// visible. Longer than `most` characters: cut, with an ellipsis.
std::string escape(std::string_view text, std::size_t most = 4000);
// How many columns of a fixed font it takes, about: what is shown of it by escape(), wide letters
// as two.
double columns_of(std::string_view text);
// At most `most` characters, the last of them an ellipsis where some are left out; never splits a
// character. Not escaped yet.
std::string shorten(std::string_view text, std::size_t most);
// A part of a file's name or of an id: letters, digits and dashes, at most 40 of them; "part" when
// nothing is left.
std::string slug(std::string_view text);

// Three digits: "0.0123", "1.23", "12.3", "1,234"; what is not finite is "–".
std::string three(double value);
std::string plain_number(double value);    // a count as it is, "16"; else as three()
std::string percent(double share);         // of 0.123: "12.3%"
std::string accuracy_text(double share);   // an accuracy: always two decimals, "91.25%"
std::string byte_text(double bytes);       // "1.23 MB" (10^6)
std::string seconds_text(double seconds);  // "12.3 ms", "1.23 s", "4 m 12 s"

struct Entry {  // of the table of contents
  std::string id, name;
};
struct Shell {
  std::string title;
  bool refresh = false;  // every 3 seconds, while something goes on
  std::vector<Entry> contents;
};
// The whole page around `body`, which is HTML already.
std::string document(const Shell& shell, const std::string& body);
const char* page_style();

std::string base64(std::string_view bytes);

// The file appears whole or not at all; folders on its way are made. Error(disk) where it cannot.
void write_whole(const std::string& path, std::string_view bytes);

}  // namespace tessera::report
