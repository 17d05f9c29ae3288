// The head of a program: from what a batch is (ImageForm) to the numbers that a model reads.
#pragma once

#include "compile/compile.h"
#include "ir/builder.h"

namespace tessera::run {

// [b,h,w,c] in the program's precision.
ir::Var write_input(ir::Builder& b, const StepSpec& spec, std::int64_t batch, ImageForm form);

}  // namespace tessera::run
