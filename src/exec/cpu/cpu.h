// The CPU as a row of the device table.
#pragma once

#include <memory>

#include "exec/device.h"
#include "exec/executor.h"

namespace tessera::exec::cpu {

DeviceInfo info(int threads);
// Names of what decides about bits here: the instruction set, and of products with factors of a
// type the micro-kernel: "NEON, bfmmla".
std::string kernel_names(std::string_view dtype);
plan::Target target(int threads);
std::unique_ptr<Executor> make(int threads, Groups groups, std::string folder, Threading threading);

}  // namespace tessera::exec::cpu
