// The source text as the tests of this folder read it: files under the root, line by line.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tessera::test {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

inline const fs::path kRoot = TESSERA_SOURCE_DIR;

inline Strings lines_of(const fs::path& file) {
  std::ifstream in(file);
  Strings lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

inline bool starts_with_any(const std::string& path, const Strings& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& p) { return path.starts_with(p); });
}

inline bool is_code(const fs::path& file) {
  static const Strings endings = {".h", ".cpp", ".cu", ".cuh"};
  return std::find(endings.begin(), endings.end(), file.extension().string()) != endings.end();
}

// Code files under kRoot/folder, relative to it, sorted.
inline Strings code_in(const std::string& folder) {
  Strings files;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
    if (entry.is_regular_file() && is_code(entry.path()))
      files.push_back(fs::relative(entry.path(), kRoot / folder).generic_string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace tessera::test
