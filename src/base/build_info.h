// Facts about this build: its version, the commit it was made of, and the compiler.
#pragma once

#include <string>

namespace tessera {

extern const char* const build_version;   // "0.1.0"
extern const char* const build_commit;    // twelve digits, or "unknown" outside a repository
extern const char* const build_compiler;  // "GNU 12.2.0"

std::string version();  // "0.1.0 (commit)"

}  // namespace tessera
