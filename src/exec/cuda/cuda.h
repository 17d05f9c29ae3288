// CUDA as a row of the device table. Convention: nothing here needs a header of CUDA, so that the
// table is the same in a build without it (exec/no_cuda.cpp).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exec/device.h"
#include "exec/executor.h"

namespace tessera::exec::cuda {

bool built();  // whether this build has the executor
// Why no card can be used here, in a sentence; empty: one can.
std::string missing();
// Facts for `tessera version --verbose`: the driver, the cards, the libraries; name and value.
std::vector<std::pair<std::string, std::string>> facts();

DeviceInfo info(int threads);
// The target of this process's card; without a card, that of an H100 with cuDNN.
plan::Target target(int threads);
std::unique_ptr<Executor> make(int threads, Groups groups, Carrier carrier = Carrier::host,
                               std::string folder = {}, Liberties liberties = {});

}  // namespace tessera::exec::cuda
