// Turns exceptions of libraries into an Error with its exit code.
#pragma once

#include <exception>

#include "base/check.h"

namespace tessera {

// Memory and threads that are not to be had are Error(memory), folders and files that cannot be
// looked at Error(disk); anything else that is no Error is a defect of ours.
Error as_error(const std::exception& thrown);

}  // namespace tessera
