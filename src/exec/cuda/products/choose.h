// Choices of a step from libraries, made without running it: each ends in the table of choices that
// the libraries were opened with (Blas::open, Dnn::open).
#pragma once

#include "exec/cuda/kernel.h"

namespace tessera::exec::cuda {

void choose_contract(const Call& call);
void choose_conv(const Call& call);  // and its gradients

// The chooser of an op; null: its kernel takes nothing from libraries.
inline Kernel chooser(ir::Op op) {
  switch (op) {
    case ir::Op::contract:
      return choose_contract;
    case ir::Op::conv:
    case ir::Op::conv_input_grad:
    case ir::Op::conv_filter_grad:
      return choose_conv;
    default:
      return nullptr;
  }
}

}  // namespace tessera::exec::cuda
