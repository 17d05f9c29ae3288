// Stands for dnn.cpp where cuDNN's headers were not found at build time: convolutions are then
// kernels of our own.
#include "exec/cuda/products/dnn.h"

#include "base/check.h"

namespace tessera::exec::cuda {

class DnnPlan {};
struct Dnn::Library {};

std::unique_ptr<Dnn> Dnn::open(Choices*) { return nullptr; }
Dnn::~Dnn() = default;

std::shared_ptr<const DnnPlan> Dnn::plan(const DnnConv&, const Trial*) const { return nullptr; }
void Dnn::run(const DnnPlan&, const DnnConvAddresses&, cudaStream_t) const {
  CHECK(false, "a convolution was planned with cuDNN, which is not part of this build");
}

}  // namespace tessera::exec::cuda
