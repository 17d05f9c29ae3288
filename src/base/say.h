// The one way from this program to a terminal, a pipe or a log that people read.
// Convention: every text argument of say() is taken for one from outside and shown on one line;
// texts of several lines of our own go through say_lines(), documents through say_json(). A test
// (tests/architecture) finds whoever prints in another way.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/printable.h"

namespace tessera {

// A text as it may be shown; anything else as it is.
template <class T>
decltype(auto) shown(const T& argument) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>)
    return printable(std::string_view(argument), std::string::npos);
  else
    return (argument);
}
template <class T>
using Shown = decltype(shown(std::declval<const T&>()));

// Line ends stay, whatever else steers a terminal is made visible. Never throws: a message that
// cannot be delivered is dropped, and results on stdout are looked after where the process ends
// (base/streams.h: cannot_write_stdout).
void say_lines(std::FILE* to, std::string_view text);
// One JSON document or one line of JSON, and a line end.
void say_json(std::FILE* to, std::string_view document);

template <class... T>
void say(std::FILE* to, fmt::format_string<Shown<T>...> format, const T&... arguments) {
  say_lines(to, fmt::format(format, shown(arguments)...));
}

}  // namespace tessera
