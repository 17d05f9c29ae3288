// Errors, the one way Tessera says that something is wrong.
// Error: what ends a run because of something outside (input, disk, rank); it carries its
// documented exit code. CHECK: our own mistake; it also throws, so that the message reaches the
// user with its place.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The value is the exit code of the process (docs/cli.md, "Exit codes").
enum class ErrorKind {
  usage = 2,      // command line or config
  data = 3,       // data set or image
  weights = 4,    // checkpoint, weights or golden file
  nonfinite = 5,  // NaN or infinity in training
  hang = 6,       // a rank waits forever
  rank_lost = 7,  // a rank died
  memory = 8,     // out of memory
  disk = 9,       // disk full or unwritable
  device = 10,    // a GPU, its driver or one of its libraries is missing or failed
  internal = 70,  // a defect of ours
  stopped = 75,   // stopped on request, resumable
};

struct Error : std::exception {
  ErrorKind kind = ErrorKind::internal;
  std::string message;  // what was expected and what was found
  std::string where;    // file:line:col, tensor, equation, ...; may be empty
  std::string hint;     // how to fix it; may be empty
  std::vector<std::string>
      also;  // further problems found in the same pass, each complete in itself

  Error(ErrorKind kind, std::string message, std::string where = {}, std::string hint = {});
  const char* what() const noexcept override {
    return text_.c_str();
  }  // steers no terminal; the fields are exact
  int exit_code() const { return static_cast<int>(kind); }
  // Adds context in front of `where` and keeps the rest.
  Error& in(std::string_view outer);
  Error& and_also(std::string problem);

 private:
  std::string text_;  // "where: message\n  also: ...\n  help: hint"
  void compose();
};

[[noreturn]] void fail_check(const char* condition, const std::string& message, const char* file,
                             int line);

// 'a', 'b' or 'c' : for hints; and the nearest of `names` to `word` by edit distance ("" when
// nothing is near).
std::string join(const std::vector<std::string>& words, std::string_view separator);
std::string nearest(std::string_view word, const std::vector<std::string>& names);

}  // namespace tessera

#define CHECK(condition, message)                                                       \
  do {                                                                                  \
    if (!(condition)) ::tessera::fail_check(#condition, (message), __FILE__, __LINE__); \
  } while (0)
