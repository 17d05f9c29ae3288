// Libraries that are opened when they are first needed, so that a program which was built with CUDA
// starts on a machine without them. Convention: a handle is never closed; what a library gave
// stays valid until the process ends.
#pragma once

#include <string>
#include <vector>

namespace tessera::exec::cuda {

class Library {
 public:
  // The first of these names that the system's loader finds, for example "libcudnn.so.9" before
  // "libcudnn.so"; false as a bool when there is none, and error() says what was looked for.
  static Library find(std::vector<std::string> names);
  // The same, but Error(device) when there is none. `purpose` ends the sentence "... is needed".
  static Library open(std::vector<std::string> names, const std::string& purpose);

  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& name() const { return name_; }    // of the file that was found
  const std::string& error() const { return error_; }  // empty: it is open

  // A function by its name; Error(device) where the library lacks it, which names both.
  template <class F>
  F* symbol(const char* function) const {
    return reinterpret_cast<F*>(address(function));
  }
  // The same, but null where the library lacks it.
  template <class F>
  F* symbol_or_null(const char* function) const {
    return reinterpret_cast<F*>(find_address(function));
  }

 private:
  void* address(const char* function) const;
  void* find_address(const char* function) const;

  void* handle_ = nullptr;
  std::string name_, error_;
};

}  // namespace tessera::exec::cuda
