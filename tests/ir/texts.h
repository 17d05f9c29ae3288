// Programs that several tests read: one of every op, and small ones to break.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "base/check.h"
#include "ir/program.h"

namespace tessera::test {

inline std::string read_source(const std::string& path) {
  std::ifstream file(std::string(TESSERA_SOURCE_DIR) + "/" + path);
  EXPECT_TRUE(file) << path << " is missing";
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::string every_op() { return read_source("tests/ir/every_op.ir"); }
inline std::string one_rank() {
  return read_source("tests/ir/one_rank.ir");
}  // what localise() makes of collectives

// The message of the Error that `body` throws; "" (and a failure) when it throws none.
template <class Body>
std::string message_of(Body body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

#define EXPECT_SAYS(text, words)                   \
  EXPECT_NE((text).find(words), std::string::npos) \
      << "expected: " << (words) << "\nfound:    " << (text)

}  // namespace tessera::test
