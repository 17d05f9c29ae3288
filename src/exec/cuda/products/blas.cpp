#include "exec/cuda/products/blas.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "exec/cuda/handles.h"
#include "exec/cuda/products/blas_api.h"
#include "exec/cuda/products/choice_text.h"
#include "exec/cuda/products/fastest.h"

namespace tessera::exec::cuda {

namespace {

using std::int64_t;

cudaDataType_t element_type(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::f64:
      return CUDA_R_64F;
    case ir::DType::bf16:
      return CUDA_R_16BF;
    case ir::DType::f16:
      return CUDA_R_16F;
    case ir::DType::f8e4m3:
      return CUDA_R_8F_E4M3;
    case ir::DType::f8e5m2:
      return CUDA_R_8F_E5M2;
    default:
      CHECK(dtype == ir::DType::f32, "a matrix product has floating elements");
      return CUDA_R_32F;
  }
}
cublasComputeType_t compute_type(const Product& product) {
  if (product.factors == ir::DType::f64) return CUBLAS_COMPUTE_64F;
  return product.factors == ir::DType::f32 && product.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                           : CUBLAS_COMPUTE_32F;
}

// How a matrix lies in memory, in the library's words: column-major, perhaps transposed.
struct Layout {
  cublasOperation_t op = CUBLAS_OP_N;
  int64_t rows = 1, cols = 1, leading = 1;
};
std::optional<Layout> layout_of(int64_t rows, int64_t row_stride, int64_t cols,
                                int64_t col_stride) {
  if ((rows == 1 || row_stride == 1) && (cols == 1 || col_stride >= rows))
    return Layout{CUBLAS_OP_N, rows, cols, cols == 1 ? rows : col_stride};
  if ((cols == 1 || col_stride == 1) && (rows == 1 || row_stride >= cols))
    return Layout{CUBLAS_OP_T, cols, rows, rows == 1 ? cols : row_stride};
  return {};
}
// Factors of one byte lie with depth inside, which the library calls transposed on the left and
// plain on the right, in rows of whole 16 bytes; e5m2 on both sides it has not.
bool takes_bytes(const Product& p) {
  if (!ir::is_quantised(p.factors)) return true;
  return p.factors != ir::DType::i8 && p.left.depth == 1 && p.right.depth == 1 &&
         p.left.outer >= p.depth && p.right.outer >= p.depth && p.left.outer % 16 == 0 &&
         p.right.outer % 16 == 0 && p.rows % 16 == 0 && p.cols % 16 == 0 && p.depth % 16 == 0 &&
         !(p.factors == ir::DType::f8e5m2 && p.right_factor == ir::DType::f8e5m2);
}
std::optional<Layout> left_layout(const Product& p) {
  return layout_of(p.rows, p.left.outer, p.depth, p.left.depth);
}
std::optional<Layout> right_layout(const Product& p) {
  return layout_of(p.depth, p.right.depth, p.cols, p.right.outer);
}

cublasLtEpilogue_t epilogue_of(const Product& p) {
  if (p.gelu && p.before_gelu)
    return p.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  if (p.gelu) return p.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  if (p.relu) return CUBLASLT_EPILOGUE_RELU_BIAS;
  return p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

cublasLtMatrixLayout_t make_layout(const BlasApi& api, ir::DType dtype, const Layout& layout,
                                   int64_t batches, int64_t batch_stride) {
  cublasLtMatrixLayout_t out = nullptr;
  api.must(api.layout_create(&out, element_type(dtype), static_cast<std::uint64_t>(layout.rows),
                             static_cast<std::uint64_t>(layout.cols), layout.leading),
           "the layout of a matrix");
  const auto count = static_cast<std::int32_t>(batches);
  const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
    api.must(api.layout_set(out, attribute, &value, sizeof value), "the batches of a matrix");
  };
  if (batches > 1) {
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count);
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride);
  }
  return out;
}

// A preference object of the library, destroyed with this one.
class Preference {
 public:
  explicit Preference(const BlasApi& api) : api_(api) {
    api_.must(api_.preference_create(&handle_), "a preference");
  }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  ~Preference() { api_.preference_destroy(handle_); }

  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    api_.must(api_.preference_set(handle_, attribute, &value, sizeof value), "a preference");
  }
  cublasLtMatmulPreference_t get() const { return handle_; }

 private:
  const BlasApi& api_;
  cublasLtMatmulPreference_t handle_ = nullptr;
};

}  // namespace

std::uint32_t alignment_of(std::initializer_list<std::uintptr_t> values) {
  std::uint32_t alignment = 256;
  for (const std::uintptr_t value : values)
    while (value % alignment != 0) alignment /= 2;
  return alignment;
}

int64_t blas_workspace(const Limits& limits) {
  return (limits.arch >= 90 ? int64_t{32} : int64_t{8}) << 20;
}

bool blas_takes(const Product& p) {
  constexpr int64_t most = (int64_t{1} << 31) - 1;
  const bool sizes = p.rows >= 1 && p.cols >= 1 && p.depth >= 1 && p.batches >= 1 &&
                     p.rows <= most && p.cols <= most && p.depth <= most && p.batches <= 65535;
  const bool aux = !p.before_gelu || (p.cols == 1 ? p.rows : p.d.col) % 8 == 0;
  return sizes && aux && takes_bytes(p) && left_layout(p) && right_layout(p) &&
         (p.cols == 1 || p.d.col >= p.rows);
}

BlasPlan::BlasPlan(BlasPlan&& other) noexcept
    : api_(other.api_),
      product_(other.product_),
      desc_(std::exchange(other.desc_, nullptr)),
      left_(std::exchange(other.left_, nullptr)),
      right_(std::exchange(other.right_, nullptr)),
      d_(std::exchange(other.d_, nullptr)),
      algo_(other.algo_),
      workspace_(other.workspace_) {}

BlasPlan& BlasPlan::operator=(BlasPlan&& other) noexcept {
  std::swap(api_, other.api_);
  std::swap(product_, other.product_);
  std::swap(desc_, other.desc_);
  std::swap(left_, other.left_);
  std::swap(right_, other.right_);
  std::swap(d_, other.d_);
  std::swap(algo_, other.algo_);
  std::swap(workspace_, other.workspace_);
  return *this;
}

BlasPlan::~BlasPlan() {
  for (const cublasLtMatrixLayout_t layout : {left_, right_, d_})
    if (layout) api_->layout_destroy(layout);
  if (desc_) api_->desc_destroy(desc_);
}

std::unique_ptr<Blas> Blas::open(Choices* choices) {
  std::unique_ptr<Blas> blas(new Blas);
  blas->choices_ = choices;
  blas->api_ = std::make_unique<const BlasApi>(load_blas());
  blas->api_->must(blas->api_->create(&blas->handle_), "to start");
  return blas;
}

Blas::~Blas() {
  if (handle_) api_->destroy(handle_);
}

std::optional<BlasPlan> Blas::plan(const Product& p, const Trial* trial) const {
  if (!blas_takes(p)) return {};
  BlasPlan plan = described(p);
  const std::string key = key_of(p);
  if (!choices_) return choose(plan, key, nullptr) ? std::optional(std::move(plan)) : std::nullopt;
  if (const Choice* kept = choices_->find(key)) {
    if (kept->algorithm.empty()) return {};
    if (take(plan, *kept)) return plan;
    choices_->refuse(key);
  }
  const bool found = choose(plan, key, trial);
  const auto algorithm = std::as_bytes(std::span(plan.algo_.data));
  choices_->add(key, found ? Choice{to_hex(algorithm), plan.workspace_} : Choice{});
  return found ? std::optional(std::move(plan)) : std::nullopt;
}

// The library says itself whether it can run it here.
bool Blas::take(BlasPlan& plan, const Choice& choice) const {
  const std::optional<std::vector<std::byte>> bytes =
      from_hex(choice.algorithm, sizeof plan.algo_.data);
  if (!bytes) return false;
  std::memcpy(plan.algo_.data, bytes->data(), bytes->size());
  cublasLtMatmulHeuristicResult_t said{};
  const cublasStatus_t status = api_->check(handle_, plan.desc_, plan.left_, plan.right_, plan.d_,
                                            plan.d_, &plan.algo_, &said);
  plan.workspace_ = static_cast<int64_t>(said.workspaceSize);
  return status == CUBLAS_STATUS_SUCCESS && said.state == CUBLAS_STATUS_SUCCESS &&
         plan.workspace_ <= plan.product_.workspace;
}

BlasPlan Blas::described(const Product& p) const {
  const BlasApi& api = *api_;
  const Layout left = *left_layout(p), right = *right_layout(p);
  const Layout d{CUBLAS_OP_N, p.rows, p.cols, p.cols == 1 ? p.rows : p.d.col};
  BlasPlan plan(api, p);
  const cudaDataType_t scale = p.factors == ir::DType::f64 ? CUDA_R_64F : CUDA_R_32F;
  api.must(api.desc_create(&plan.desc_, compute_type(p), scale), "a matrix product");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    api.must(api.desc_set(plan.desc_, attribute, &value, sizeof value),
             "an attribute of a matrix product");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, left.op);
  set(CUBLASLT_MATMUL_DESC_TRANSB, right.op);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
  if (ir::is_quantised(p.factors)) {
    // Sums of products of activations may lose bits of the accumulator; those of gradients not.
    const bool fast = p.factors == ir::DType::f8e4m3 && p.right_factor == ir::DType::f8e4m3;
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(fast));
  }
  // The heuristic reads off these addresses how far they are aligned, and nothing else.
  const auto address = static_cast<std::uintptr_t>(p.align_result);
  if (p.scaled) {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, address);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, address);
  }
  if (p.bias) {
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, address);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, element_type(p.result));
    if (p.batches > 1) set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, p.bias_batch);
  }
  if (p.gelu && p.before_gelu) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, address);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, d.leading);
    if (p.batches > 1) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, p.d.batch);
  }
  plan.left_ = make_layout(api, p.factors, left, p.batches, p.left.batch);
  plan.right_ = make_layout(api, p.right_factor, right, p.batches, p.right.batch);
  plan.d_ = make_layout(api, p.result, d, p.batches, p.d.batch);
  return plan;
}

Blas::Algorithms Blas::algorithms(const BlasPlan& plan) const {
  const BlasApi& api = *api_;
  const Product& p = plan.product_;
  Preference preference(api);
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(p.workspace));
  // Partial sums over depth are added in a fixed order, in the type of the sum.
  preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                 static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.align_left);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.align_right);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.align_result);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.align_result);
  std::array<cublasLtMatmulHeuristicResult_t, 8> found{};
  int count = 0;
  const cublasStatus_t status =
      api.heuristic(handle_, plan.desc_, plan.left_, plan.right_, plan.d_, plan.d_,
                    preference.get(), static_cast<int>(found.size()), found.data(), &count);
  Algorithms out;
  for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; ++i)
    if (const auto& one = found[static_cast<std::size_t>(i)];
        one.state == CUBLAS_STATUS_SUCCESS &&
        one.workspaceSize <= static_cast<std::size_t>(p.workspace))
      out.emplace_back(one.algo, static_cast<int64_t>(one.workspaceSize));
  return out;
}

// The fastest where the product takes long enough to be worth it, else the library's first choice.
bool Blas::choose(BlasPlan& plan, const std::string& key, const Trial* trial) const {
  Algorithms all = algorithms(plan);
  // The library offers some algorithms for quantised factors and refuses them when they start.
  if (trial && ir::is_quantised(plan.product_.factors))
    std::erase_if(all, [&](const auto& one) {
      std::tie(plan.algo_, plan.workspace_) = one;
      return started(plan, trial->at, trial->stream) != CUBLAS_STATUS_SUCCESS;
    });
  if (all.empty()) return false;
  const Product& p = plan.product_;
  const double flops = 2.0 * static_cast<double>(p.rows * p.cols) * static_cast<double>(p.depth) *
                       static_cast<double>(p.batches);
  if (trial && all.size() > 1 && flops >= least_measured_flops) {
    const Choice* fastest =
        Fastest::of(choices_->made_with()).find(key, [&] { return measure(plan, all, *trial); });
    if (fastest && take(plan, *fastest)) return true;
  }
  std::tie(plan.algo_, plan.workspace_) = all[0];
  return true;
}

// The least of several rounds of each; an algorithm behind the first must be 2% faster than what
// stands before it, so that noise alone does not choose.
Choice Blas::measure(BlasPlan& plan, const Algorithms& all, const Trial& trial) const {
  constexpr int rounds = 5;
  std::vector<float> least(all.size(), std::numeric_limits<float>::infinity());
  const Event began = make_event(true), ended = make_event(true);
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::tie(plan.algo_, plan.workspace_) = all[i];
      must(::cudaEventRecord(began, trial.stream), "time a product");
      run(plan, trial.at, trial.stream);
      must(::cudaEventRecord(ended, trial.stream), "time a product");
      must(::cudaEventSynchronize(ended), "time a product");
      float ms = 0;
      must(::cudaEventElapsedTime(&ms, began, ended), "time a product");
      if (round > 0) least[i] = std::min(least[i], ms);  // the first loads code
    }
  std::size_t best = 0;
  for (std::size_t i = 1; i < all.size(); ++i)
    if (least[i] < 0.98f * least[best]) best = i;
  return {to_hex(std::as_bytes(std::span(all[best].first.data))), all[best].second};
}

void Blas::run(const BlasPlan& plan, const ProductAddresses& at, cudaStream_t stream) const {
  const cublasStatus_t status = started(plan, at, stream);
  if (status != CUBLAS_STATUS_SUCCESS)
    api_->must(status, ("to run a " + key_of(plan.product_)).c_str());
}

cublasStatus_t Blas::started(const BlasPlan& plan, const ProductAddresses& at,
                             cudaStream_t stream) const {
  const BlasApi& api = *api_;
  const Product& p = plan.product_;
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* address) {
    api.must(api.desc_set(plan.desc_, attribute, &address, sizeof address),
             "an address of a matrix product");
  };
  if (p.scaled) {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, at.left_scale);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, at.right_scale);
  }
  if (p.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, at.bias);
  if (p.gelu && p.before_gelu) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, at.before_gelu);
  const double one_f64 = 1, beta_f64 = at.c ? 1 : 0;
  const float one_f32 = 1, beta_f32 = at.c ? 1 : 0;
  const bool wide = p.factors == ir::DType::f64;
  const void* alpha = wide ? static_cast<const void*>(&one_f64) : &one_f32;
  const void* beta = wide ? static_cast<const void*>(&beta_f64) : &beta_f32;
  return api.matmul(handle_, plan.desc_, alpha, at.left, plan.left_, at.right, plan.right_, beta,
                    at.c ? at.c : at.d, plan.d_, at.d, plan.d_, &plan.algo_, at.workspace,
                    static_cast<std::size_t>(p.workspace), stream);
}

}  // namespace tessera::exec::cuda
