#include "exec/cuda/products/dnn.h"

#include <cudnn_graph.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "exec/cuda/handles.h"
#include "exec/cuda/library.h"
#include "exec/cuda/products/choice_text.h"
#include "exec/cuda/products/dnn_descriptor.h"
#include "exec/cuda/products/dnn_graph.h"
#include "exec/cuda/products/fastest.h"

namespace tessera::exec::cuda {

struct Dnn::Library {
  decltype(cudnnCreate)* create;
  decltype(cudnnDestroy)* destroy;
  decltype(cudnnSetStream)* set_stream;
  decltype(cudnnGetErrorString)* error_string;
  decltype(cudnnBackendCreateDescriptor)* create_descriptor;
  decltype(cudnnBackendDestroyDescriptor)* destroy_descriptor;
  decltype(cudnnBackendSetAttribute)* set_attribute;
  decltype(cudnnBackendGetAttribute)* get_attribute;
  decltype(cudnnBackendFinalize)* finalize;
  decltype(cudnnBackendExecute)* execute;
  cudnnHandle_t handle = nullptr;

  void must(cudnnStatus_t status, const char* what) const {
    if (status == CUDNN_STATUS_SUCCESS) return;
    throw Error(ErrorKind::device,
                std::string("cuDNN refuses ") + what + ": " + error_string(status));
  }
};

namespace {

using std::int64_t;

// This name is deprecated too, as graph_handle is (dnn_graph.h).
constexpr auto plan_handle = static_cast<cudnnBackendAttributeName_t>(400);

// Whether the notes of an engine allow it: the same bits in every run unless any order will do,
// and f32 as exact as asked.
bool exact_enough(const std::vector<cudnnBackendNumericalNote_t>& notes, const DnnConv& conv) {
  const bool strict = conv.dtype == ir::DType::f32 && !conv.tf32;
  for (const cudnnBackendNumericalNote_t note : notes) switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        if (!conv.any_order) return false;
        break;
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        return false;
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        if (conv.dtype == ir::DType::f32) return false;
        break;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        if (strict) return false;
        break;
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        // Their transforms lose bits, and in f16 the range as well.
        if (strict || conv.dtype == ir::DType::f16) return false;
        break;
      default:
        break;
    }
  return true;
}

// Describes a convolution and finds an engine for it; every descriptor on the way is kept.
template <class L>
class Search {
 public:
  Search(const L& library, const DnnConv& conv) : library_(library), conv_(conv) {}

  // True: the last part is an execution plan that is ready.
  bool find() {
    parts_.clear();
    if (!describe()) return false;
    for (const cudnnBackendHeurMode_t mode :
         {CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
      if (try_mode(mode)) return true;
    return false;
  }
  // The first few engines that the library proposes, of those that can be found again.
  std::vector<Choice> proposed() {
    parts_.clear();
    std::vector<Choice> out;
    if (!describe()) return out;
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_A})
      for (const Descriptor<L>& config : configs_of(mode)) {
        if (out.size() == (conv_.finishes ? most_compiled : most_tried) || !try_config(config))
          continue;
        parts_.pop_back();
        if (choice_ && std::find(out.begin(), out.end(), *choice_) == out.end())
          out.push_back(*choice_);
      }
    return out;
  }
  // The same for an engine that was found before.
  bool take_again(const Choice& choice) {
    const std::optional<DnnEngine> engine = engine_from(choice.algorithm);
    return engine && describe() && configure(library_, graph(), *engine, parts_) &&
           try_config(parts_.back());
  }
  std::vector<Descriptor<L>> take() { return std::move(parts_); }
  // The choice that was found; nothing where the library does not say how to find it again.
  const std::optional<Choice>& choice() const { return choice_; }

 private:
  static constexpr int64_t most_configs = 32;
  static constexpr std::size_t most_tried = 6;
  static constexpr std::size_t most_compiled = 2;  // code of its own is compiled for a graph

  bool describe() {
    graph_ = describe_conv(library_, conv_, parts_);
    return graph_ >= 0;
  }
  const Descriptor<L>& graph() const { return parts_[static_cast<std::size_t>(graph_)]; }

  // The configurations that the library proposes, the best first.
  std::vector<Descriptor<L>> configs_of(cudnnBackendHeurMode_t mode) {
    std::vector<Descriptor<L>> configs;
    Descriptor<L> heuristic(library_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph());
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!heuristic.finalize()) return configs;
    std::vector<cudnnBackendDescriptor_t> handles;
    for (int64_t i = 0; i < most_configs; ++i) {
      configs.emplace_back(library_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      handles.push_back(configs.back().get());
    }
    const int64_t count = heuristic.get(
        CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, most_configs, handles.data());
    while (static_cast<int64_t>(configs.size()) > std::clamp<int64_t>(count, 0, most_configs))
      configs.pop_back();
    return configs;
  }

  bool try_mode(cudnnBackendHeurMode_t mode) {
    for (Descriptor<L>& config : configs_of(mode))
      if (try_config(config)) {
        parts_.push_back(std::move(config));
        std::swap(parts_[parts_.size() - 1], parts_[parts_.size() - 2]);  // the plan is the last
        return true;
      }
    return false;
  }

  bool try_config(const Descriptor<L>& config) {
    Descriptor<L> engine(library_, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t handle = engine.get();
    if (config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle) != 1)
      return false;
    std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    const auto most = static_cast<int64_t>(notes.size());
    const int64_t count =
        engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, most, notes.data());
    notes.resize(static_cast<std::size_t>(std::min(count, most)));
    if (!exact_enough(notes, conv_)) return false;

    Descriptor<L> plan(library_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(plan_handle, CUDNN_TYPE_HANDLE, 1, &library_.handle);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (!plan.finalize()) return false;
    int64_t bytes = 0;
    if (plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes) != 1 ||
        bytes > conv_.workspace)
      return false;
    choice_.reset();
    if (const auto known = engine_of(library_, config, engine))
      choice_ = Choice{to_text(*known), bytes};
    parts_.push_back(std::move(plan));
    return true;
  }

  const L& library_;
  const DnnConv& conv_;
  std::vector<Descriptor<L>> parts_;
  int graph_ = -1;  // its place among the parts
  std::optional<Choice> choice_;
};

// The interface that run() needs, behind a type that does not name Dnn::Library.
struct AnyPlan {
  virtual ~AnyPlan() = default;
  virtual cudnnBackendDescriptor_t get() const = 0;
};
template <class L>
struct PlanOf : AnyPlan {
  explicit PlanOf(std::vector<Descriptor<L>> parts) : parts(std::move(parts)) {}
  cudnnBackendDescriptor_t get() const override { return parts.back().get(); }
  std::vector<Descriptor<L>> parts;
};

}  // namespace

class DnnPlan {
 public:
  DnnPlan(std::unique_ptr<AnyPlan> plan, bool finishes)
      : plan_(std::move(plan)), finishes_(finishes) {}
  cudnnBackendDescriptor_t get() const { return plan_->get(); }
  bool finishes() const { return finishes_; }

 private:
  std::unique_ptr<AnyPlan> plan_;
  bool finishes_;
};

std::unique_ptr<Dnn> Dnn::open(Choices* choices) {
  using Opened = ::tessera::exec::cuda::Library;
  const Opened found = Opened::find({"libcudnn.so.9", "libcudnn.so"});
  if (!found) return nullptr;
  std::unique_ptr<Dnn> dnn(new Dnn);
  dnn->choices_ = choices;
  dnn->library_ = std::make_unique<Library>();
  Library& library = *dnn->library_;
#define LOAD(member, function) library.member = found.symbol<decltype(function)>(#function)
  LOAD(create, cudnnCreate);
  LOAD(destroy, cudnnDestroy);
  LOAD(set_stream, cudnnSetStream);
  LOAD(error_string, cudnnGetErrorString);
  LOAD(create_descriptor, cudnnBackendCreateDescriptor);
  LOAD(destroy_descriptor, cudnnBackendDestroyDescriptor);
  LOAD(set_attribute, cudnnBackendSetAttribute);
  LOAD(get_attribute, cudnnBackendGetAttribute);
  LOAD(finalize, cudnnBackendFinalize);
  LOAD(execute, cudnnBackendExecute);
#undef LOAD
  if (library.create(&library.handle) != CUDNN_STATUS_SUCCESS) return nullptr;
  return dnn;
}

Dnn::~Dnn() {
  if (library_ && library_->handle) library_->destroy(library_->handle);
}

std::shared_ptr<const DnnPlan> Dnn::plan(const DnnConv& conv, const Trial* trial) const {
  if (!ir::is_low(conv.dtype) && conv.dtype != ir::DType::f32) return nullptr;
  Search<Library> search(*library_, conv);
  const auto ready = [&] {
    return std::make_shared<const DnnPlan>(std::make_unique<PlanOf<Library>>(search.take()),
                                           conv.finishes);
  };
  const std::string key = key_of(conv);
  if (const Choice* kept = choices_ ? choices_->find(key) : nullptr) {
    if (kept->algorithm.empty()) return nullptr;
    if (search.take_again(*kept)) return ready();
    choices_->refuse(key);
  }
  // The fastest where the convolution takes long enough to be worth it.
  const double flops = 2.0 * static_cast<double>(conv.b * conv.p * conv.q * conv.o) *
                       static_cast<double>(conv.k * conv.l * conv.c);
  if (choices_ && trial && flops >= least_measured_flops) {
    const Choice* fastest =
        Fastest::of(choices_->made_with()).find(key, [&] { return measure(conv, *trial); });
    if (fastest && !fastest->algorithm.empty() && search.take_again(*fastest)) {
      choices_->add(key, *fastest);
      return ready();
    }
  }
  const bool found = search.find();
  if (choices_ && !found) choices_->add(key, {});
  if (choices_ && found && search.choice()) choices_->add(key, *search.choice());
  return found ? ready() : nullptr;
}

// The least of several rounds of each; an engine behind the first must be 2% faster than what
// stands before it. Empty: the library proposes none that runs and could be found again.
Choice Dnn::measure(const DnnConv& conv, const Trial& trial) const {
  constexpr int rounds = 4;
  const Event began = make_event(true), ended = make_event(true);
  const auto time_of = [&](const DnnPlan& plan) {
    float least = std::numeric_limits<float>::infinity();
    for (int round = 0; round < rounds; ++round) {
      must(::cudaEventRecord(began, trial.stream), "time a convolution");
      run(plan, trial.at, trial.stream);
      must(::cudaEventRecord(ended, trial.stream), "time a convolution");
      must(::cudaEventSynchronize(ended), "time a convolution");
      float ms = 0;
      must(::cudaEventElapsedTime(&ms, began, ended), "time a convolution");
      if (round > 0) least = std::min(least, ms);  // the first loads code
    }
    return least;
  };
  Choice best;
  float least = std::numeric_limits<float>::infinity();
  for (const Choice& choice : Search<Library>(*library_, conv).proposed()) {
    Search<Library> search(*library_, conv);
    if (!search.take_again(choice)) continue;
    const float ms =
        time_of(DnnPlan(std::make_unique<PlanOf<Library>>(search.take()), conv.finishes));
    if (ms >= 0.98f * least) continue;
    least = ms;
    best = choice;
  }
  return best;
}

void Dnn::run(const DnnPlan& plan, const DnnConvAddresses& at, cudaStream_t stream) const {
  const Library& library = *library_;
  library.must(library.set_stream(library.handle, stream), "a stream");
  Descriptor<Library> pack(library, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const std::array<int64_t, 5> ids = {images_id, filters_id, results_id, scale_id, offset_id};
  const std::array<void*, 5> addresses = {
      at.images, at.filters, at.results, const_cast<void*>(at.scale), const_cast<void*>(at.offset)};
  const int64_t count = plan.finishes() ? 5 : 3;
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, addresses.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &at.workspace);
  CHECK(pack.finalize(), "cuDNN does not take the addresses of a convolution");
  library.must(library.execute(library.handle, plan.get(), pack.get()), "to run a convolution");
}

}  // namespace tessera::exec::cuda
