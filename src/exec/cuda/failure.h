// Failures of a card, its driver or its runtime, as an Error that says what to do. Convention:
// every call of the runtime goes through must(); so a test can make any of them fail.
#pragma once

#include <string>

#include "exec/cuda/kernel.h"

namespace tessera::exec::cuda {

// From now on the call number `nth` (from 1) whose words contain `what` fails with `status`. The
// environment does the same for a whole process: TESSERA_CUDA_FAIL="WORDS:NTH:STATUS", for example
// "launch a graph:3:719". An empty `what` ends it.
void simulate_failure(std::string what, int nth, cudaError_t status);

// The status of a call, or the one that it is made to fail with; must(), refused() and launched()
// ask it themselves.
cudaError_t simulated_status(cudaError_t status, const char* what);

// Like must(), for what may be refused: whether it was. What is no refusal throws.
bool refused(cudaError_t status, const char* what);

// The error of a status that is no success.
[[noreturn]] void fail(cudaError_t status, const std::string& what);

}  // namespace tessera::exec::cuda
