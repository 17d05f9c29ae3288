// contract whose `to` is a quantised type.
#pragma once

#include "exec/cuda/kernel.h"

namespace tessera::exec::cuda {

void run_contract_bytes(const Call& call);
void choose_contract_bytes(const Call& call);
std::int64_t workspace_contract_bytes(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                      std::span<const ir::Type> out, const Limits& limits);

}  // namespace tessera::exec::cuda
