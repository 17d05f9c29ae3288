// Whether a device can be used on this machine, asked by a process that goes on to start others: a
// child looks, since whoever has looked at a driver must not fork.
#pragma once

#include <string>

namespace tessera::run {

// Why not, in a sentence; "": it can.
std::string missing_here(const std::string& device);

}  // namespace tessera::run
