// Matrix products by cuBLASLt, a library that is opened at run time and never linked.
// Convention: everything is said in strides, counted in elements; whether a factor is transposed
// follows from them. A plan is made once and run many times.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exec/choices.h"
#include "exec/cuda/kernel.h"

namespace tessera::exec::cuda {

// D[row, col] = act(sum over depth of left[row, depth] right[depth, col] + C[row, col] + bias[row])
// for each batch. Rows are neighbours in C and D.
struct Product {
  struct Factor {
    std::int64_t outer = 0;  // stride along the rows of `left`, along the columns of `right`
    std::int64_t depth = 0, batch = 0;
  };
  struct Result {
    std::int64_t col = 0, batch = 0;
  };

  ir::DType factors = ir::DType::f32, result = ir::DType::f32;
  ir::DType right_factor = factors;  // only of f8e4m3 and f8e5m2 the other one
  bool scaled = false;               // both factors have a scale, a number on the device
  bool tf32 = false;                 // factors in f32 may be rounded to TF32
  std::int64_t rows = 1, cols = 1, depth = 1, batches = 1;
  Factor left{}, right{};
  Result d{};  // C lies as D does
  bool bias = false;
  std::int64_t bias_batch = 0;
  bool relu = false;           // goes with a bias, without gelu
  bool gelu = false;           // the tanh form
  bool before_gelu = false;    // what gelu is applied to is written too, in the layout of D
  std::int64_t workspace = 0;  // bytes
  // Every address is a multiple of this many bytes, a power of two; `align_result` is of C, D, the
  // bias and what stands before gelu.
  std::uint32_t align_left = 16, align_right = 16, align_result = 16;
};

struct ProductAddresses {
  const void *left = nullptr, *right = nullptr;
  const void *left_scale = nullptr, *right_scale = nullptr;
  const void* c = nullptr;  // null: nothing is added
  void* d = nullptr;
  const void* bias = nullptr;
  void* before_gelu = nullptr;
  void* workspace = nullptr;
};

// The largest power of two, at most 256, that divides all of these.
std::uint32_t alignment_of(std::initializer_list<std::uintptr_t> values);
// Workspace that the library is offered on a card of this compute capability.
std::int64_t blas_workspace(const Limits& limits);
// Whether the library can describe these strides.
bool blas_takes(const Product& product);

struct BlasApi;  // the functions of the library (blas.cpp)

// Descriptors and an algorithm for one Product.
class BlasPlan {
 public:
  BlasPlan(BlasPlan&& other) noexcept;
  BlasPlan& operator=(BlasPlan&& other) noexcept;
  ~BlasPlan();
  const Product& product() const { return product_; }

 private:
  friend class Blas;
  BlasPlan(const BlasApi& api, const Product& product) : api_(&api), product_(product) {}

  const BlasApi* api_;
  Product product_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t left_ = nullptr, right_ = nullptr, d_ = nullptr;
  cublasLtMatmulAlgo_t algo_{};
  std::int64_t workspace_ = 0;  // bytes of product_.workspace that the algorithm takes
};

class Blas {
 public:
  // For the current device. Error(device) when the library is missing or refuses. `choices`: what
  // is in there is taken, what is not is chosen and put there; null: nothing is kept.
  static std::unique_ptr<Blas> open(Choices* choices = nullptr);
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;
  ~Blas();

  // Nothing when the library has no algorithm that takes these strides and this epilogue, and
  // that gives the same bits in every run. `trial`: where algorithms may be tried out, on a result
  // whose content is of no account yet; null: the library's first choice is taken.
  struct Trial {
    ProductAddresses at;
    cudaStream_t stream = nullptr;
  };
  std::optional<BlasPlan> plan(const Product& product, const Trial* trial = nullptr) const;
  void run(const BlasPlan& plan, const ProductAddresses& at, cudaStream_t stream) const;

 private:
  Blas() = default;
  BlasPlan described(const Product& product) const;
  cublasStatus_t started(const BlasPlan& plan, const ProductAddresses& at,
                         cudaStream_t stream) const;
  using Algorithms = std::vector<std::pair<cublasLtMatmulAlgo_t, std::int64_t>>;
  Algorithms algorithms(const BlasPlan& plan) const;  // with their workspaces, as the library ranks
  bool choose(BlasPlan& plan, const std::string& key, const Trial* trial) const;
  Choice measure(BlasPlan& plan, const Algorithms& all, const Trial& trial) const;
  bool take(BlasPlan& plan, const Choice& choice) const;
  std::unique_ptr<const BlasApi> api_;
  Choices* choices_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
};

}  // namespace tessera::exec::cuda
