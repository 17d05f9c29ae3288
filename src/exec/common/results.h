// The single numbers of a run, from where they lie to a copy for whoever waits.
#pragma once

#include <functional>

#include "exec/executor.h"

namespace tessera::exec {

double number_at(const std::byte* bytes, ir::DType dtype);

// `address`: of the host, where the bytes of a slot can be read now.
Results collect_results(const plan::Plan& plan,
                        const std::function<const std::byte*(const plan::Slot&)>& address,
                        Timeline timeline);

}  // namespace tessera::exec
