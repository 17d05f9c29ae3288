// Convolutions by cuDNN's backend API, a library that is opened at run time and never linked.
// Where its headers were missing at build time, no_dnn.cpp stands for dnn.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "exec/choices.h"
#include "exec/cuda/kernel.h"

namespace tessera::exec::cuda {

enum class ConvPass { forward, input_grad, filter_grad };

// Images [b,h,w,c], filters [o,k,l,c] (the order that cuDNN's engines want) and results [b,p,q,o].
struct DnnConv {
  ConvPass pass = ConvPass::forward;
  ir::DType dtype = ir::DType::f32;         // elements of all three tensors
  bool tf32 = false;                        // factors in f32 may be rounded to TF32
  bool any_order = false;                   // sums may differ from run to run
  bool finishes = false;                    // forward: y = y scale + offset, one of each for o
  bool relu = false;                        // behind that
  std::int64_t b = 0, h = 0, w = 0, c = 0;  // images
  std::int64_t p = 0, q = 0, o = 0;         // results
  std::int64_t k = 0, l = 0;                // filters
  std::int64_t stride = 1, pad = 0;
  std::int64_t workspace = 0;                                              // bytes at most
  std::int64_t align_images = 16, align_filters = 16, align_results = 16;  // bytes

  bool operator==(const DnnConv&) const = default;
};

struct DnnConvAddresses {
  void *images = nullptr, *filters = nullptr, *results = nullptr;
  const void *scale = nullptr, *offset = nullptr;  // f32, of a convolution that finishes
  void* workspace = nullptr;
};

class DnnPlan;  // an engine of the library, ready to run (dnn.cpp)

class Dnn {
 public:
  // For the current device; null when the library is not there, or refuses this card. `choices` as
  // for Blas::open.
  static std::unique_ptr<Dnn> open(Choices* choices = nullptr);
  Dnn(const Dnn&) = delete;
  Dnn& operator=(const Dnn&) = delete;
  ~Dnn();

  // Null when no engine is deterministic (where it must be), as exact as was asked for, and content
  // with the workspace. This may compile or load code: not while a stream is being captured.
  // `trial`: where engines may be tried out, on a result whose content is of no account yet; null:
  // the library's first choice is taken.
  struct Trial {
    DnnConvAddresses at;
    cudaStream_t stream = nullptr;
  };
  std::shared_ptr<const DnnPlan> plan(const DnnConv& conv, const Trial* trial = nullptr) const;
  void run(const DnnPlan& plan, const DnnConvAddresses& at, cudaStream_t stream) const;

 private:
  Dnn() = default;
  Choice measure(const DnnConv& conv, const Trial& trial) const;
  struct Library;
  std::unique_ptr<Library> library_;
  Choices* choices_ = nullptr;
};

}  // namespace tessera::exec::cuda
