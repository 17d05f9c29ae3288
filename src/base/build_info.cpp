#include "base/build_info.h"

namespace tessera {

// The build system defines the three (CMakeLists.txt), for this file alone.
const char* const build_version = TESSERA_VERSION;
const char* const build_commit = TESSERA_COMMIT;
const char* const build_compiler = TESSERA_COMPILER;

std::string version() { return std::string(build_version) + " (" + build_commit + ")"; }

}  // namespace tessera
