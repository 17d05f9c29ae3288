// The exit code of an mpirun that a test calls itself, without the launcher of --np: MPICH's may be
// 9, that of a rank which it killed itself, in place of the failed rank's (docs/failures.md).
#pragma once

#include <cstdlib>

namespace tessera::test {

// `expected` where `code` may stand for it, else `code`.
inline int of_plain_mpirun(int code, int expected) {
  static const bool mpich = std::system("mpirun --version 2>&1 | grep -q HYDRA") == 0;
  return mpich && code == 9 && expected != 0 ? expected : code;
}

}  // namespace tessera::test
