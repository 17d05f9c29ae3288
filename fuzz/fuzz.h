// This header has what every fuzz target shares. Convention: a target calls one parser on bytes
// from a stranger, inside accepts(). The parser may take them, or refuse them with the one kind of
// tessera::Error that it promises, in words that name the input and fit on a terminal; anything
// else (another kind, another exception, a sanitizer's report) ends the process and is a finding.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size);

namespace tessera::fuzz {

inline std::uint64_t refusals = 0;  // for the count that standalone.cpp prints

[[noreturn]] inline void finding(const std::string& what) {
  std::fprintf(stderr, "finding: %s\n", what.c_str());
  std::abort();
}

// A refusal is clear when it says what it is about, is no flood, and cannot steer the terminal it
// is printed on.
inline void expect_clear(const Error& error, ErrorKind kind, std::string_view name) {
  const std::string text = error.what();
  if (error.kind != kind)
    finding("a refusal of another kind, " + std::to_string(error.exit_code()) + ": " + text);
  if (text.find(name) == text.npos)
    finding("a refusal that does not name " + std::string(name) + ": " + text);
  if (text.size() > 20'000)
    finding("a refusal of " + std::to_string(text.size()) + " bytes: " + text.substr(0, 500));
  if (std::any_of(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f;
      }))
    finding("a refusal with a control character: " + text);
}

// Whether `body` ran to its end; `name` must stand in what it throws otherwise.
template <class Body>
bool accepts(ErrorKind kind, std::string_view name, Body&& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    expect_clear(error, kind, name);
    ++refusals;
    return false;
  }
}

inline std::string_view as_text(const std::uint8_t* input, std::size_t size) {
  return {reinterpret_cast<const char*>(input), size};
}
inline std::span<const std::byte> as_bytes(const std::uint8_t* input, std::size_t size) {
  return std::as_bytes(std::span(input, size));
}

// A folder for targets whose parser reads files; gone when the process ends in peace.
inline const std::filesystem::path& scratch() {
  static const struct Folder {
    std::filesystem::path path;
    Folder() {
      std::string name = (std::filesystem::temp_directory_path() / "tessera-fuzz-XXXXXX").string();
      if (!::mkdtemp(name.data())) std::abort();
      path = name;
    }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } folder;
  return folder.path;
}

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace tessera::fuzz
