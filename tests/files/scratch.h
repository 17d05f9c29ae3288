// A folder of its own for each test, removed afterwards; and the Error that a piece of code throws.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/check.h"

namespace tessera::test {

class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera-test-XXXXXX").string();
    if (!::mkdtemp(name.data())) std::abort();
    folder_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

// Root may do everything: while this lives the process is nobody's instead, and so is the path with
// all that is in it. Nothing changes for other users.
class AsNobody {
 public:
  explicit AsNobody(const std::filesystem::path& path) : root_(::geteuid() == 0) {
    if (!root_) return;
    give(path);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) give(entry);
    if (::seteuid(nobody) != 0) std::abort();
  }
  ~AsNobody() {
    if (root_ && ::seteuid(0) != 0) std::abort();
  }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;

 private:
  static constexpr uid_t nobody = 65534;
  static void give(const std::filesystem::path& path) {
    if (::lchown(path.c_str(), nobody, nobody) != 0) std::abort();
  }
  const bool root_;
};

template <class F>
Error error_of(F&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorKind::internal, "");
}

}  // namespace tessera::test
