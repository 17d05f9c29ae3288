// Regular expressions of the C library, in POSIX's extended syntax. std::regex would cost each file
// that uses it seconds of compile time.
#pragma once

#include <regex.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace tessera::test {

class Pattern {
 public:
  explicit Pattern(const std::string& text) {
    if (::regcomp(&compiled_, text.c_str(), REG_EXTENDED) != 0)
      throw std::invalid_argument("not a regular expression: " + text);
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  ~Pattern() { ::regfree(&compiled_); }

  bool is_in(const std::string& text) const {
    return ::regexec(&compiled_, text.c_str(), 0, nullptr, 0) == 0;
  }

  // The first match from `at` on and its groups; empty where there is none. `at` moves behind it.
  std::vector<std::string> next_in(const std::string& text, std::size_t& at) const {
    regmatch_t found[10];
    if (::regexec(&compiled_, text.c_str() + at, 10, found, at == 0 ? 0 : REG_NOTBOL) != 0)
      return {};
    std::vector<std::string> groups;
    for (std::size_t i = 0; i <= compiled_.re_nsub && i < 10; ++i) {
      const bool matched = found[i].rm_so >= 0;
      groups.push_back(matched
                           ? text.substr(at + static_cast<std::size_t>(found[i].rm_so),
                                         static_cast<std::size_t>(found[i].rm_eo - found[i].rm_so))
                           : std::string());
    }
    at += static_cast<std::size_t>(found[0].rm_eo);
    return groups;
  }

 private:
  regex_t compiled_;
};

}  // namespace tessera::test
