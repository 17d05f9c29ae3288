// One descriptor of cuDNN's backend API, and engines by their numbers and knobs: what a table of
// choices keeps of one. Convention: L is Dnn::Library, which only Dnn can name; failing means an
// Error where a call is wrong, and false or nothing where the library does not take what it got.
#pragma once

#include <cudnn_graph.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "exec/cuda/products/choice_text.h"
#include "exec/cuda/products/dnn.h"

namespace tessera::exec::cuda {

// The attributes that name the parts of an operation.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t images, filters, results, conv, alpha, beta;
};
inline OperationNames names_of(ConvPass pass) {
  switch (pass) {
    case ConvPass::input_grad:
      return {.type = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              .images = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              .filters = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              .results = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              .conv = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvPass::filter_grad:
      return {.type = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              .images = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              .filters = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              .results = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              .conv = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    case ConvPass::forward:
      break;
  }
  return {.type = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          .images = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          .filters = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          .results = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
          .conv = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
}

// Destroyed with this object.
template <class L>
class Descriptor {
 public:
  Descriptor(const L& library, cudnnBackendDescriptorType_t type) : library_(&library) {
    library.must(library.create_descriptor(type, &handle_), "a descriptor");
  }
  Descriptor(Descriptor&& other) noexcept
      : library_(other.library_), handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(library_, other.library_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Descriptor() {
    if (handle_) library_->destroy_descriptor(handle_);
  }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values) {
    library_->must(library_->set_attribute(handle_, name, type, count, values), "an attribute");
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& part) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part.handle_);
  }
  // False where the library does not take what was described.
  bool finalize() { return library_->finalize(handle_) == CUDNN_STATUS_SUCCESS; }
  // How many values it has; up to `most` of them are written.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::int64_t most, void* values) const {
    std::int64_t count = 0;
    const cudnnStatus_t status = library_->get_attribute(handle_, name, type, most, &count, values);
    return status == CUDNN_STATUS_SUCCESS ? count : 0;
  }
  cudnnBackendDescriptor_t get() const { return handle_; }

 private:
  const L* library_;
  cudnnBackendDescriptor_t handle_ = nullptr;
};

// The engine of a configuration and the knobs that it was given.
template <class L>
std::optional<DnnEngine> engine_of(const L& library, const Descriptor<L>& config,
                                   const Descriptor<L>& engine) {
  DnnEngine out;
  if (engine.get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &out.index) != 1) return {};
  std::vector<Descriptor<L>> knobs;
  std::vector<cudnnBackendDescriptor_t> handles;
  while (knobs.size() < most_knobs) {
    knobs.emplace_back(library, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    handles.push_back(knobs.back().get());
  }
  const std::int64_t count =
      config.get(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                 static_cast<std::int64_t>(most_knobs), handles.data());
  for (std::size_t i = 0; i < std::min(static_cast<std::size_t>(count), most_knobs); ++i) {
    cudnnBackendKnobType_t type{};
    std::int64_t value = 0;
    if (knobs[i].get(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type) != 1 ||
        knobs[i].get(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value) != 1)
      return {};
    out.knobs.emplace_back(type, value);
  }
  return out;
}

// A configuration of this engine for a graph; all descriptors on the way are put behind `kept`, the
// configuration last. False: the library does not take it.
template <class L>
bool configure(const L& library, const Descriptor<L>& graph, const DnnEngine& wanted,
               std::vector<Descriptor<L>>& kept) {
  try {
    Descriptor<L> engine(library, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &wanted.index);
    if (!engine.finalize()) return false;
    std::vector<Descriptor<L>> knobs;
    std::vector<cudnnBackendDescriptor_t> handles;
    for (const auto& [number, value] : wanted.knobs) {
      const auto type = static_cast<cudnnBackendKnobType_t>(number);
      Descriptor<L>& knob = knobs.emplace_back(library, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
      knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
      knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
      if (!knob.finalize()) return false;
      handles.push_back(knob.get());
    }
    Descriptor<L> config(library, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    config.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    if (!handles.empty())
      config.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                 static_cast<std::int64_t>(handles.size()), handles.data());
    if (!config.finalize()) return false;
    kept.push_back(std::move(engine));
    for (Descriptor<L>& knob : knobs) kept.push_back(std::move(knob));
    kept.push_back(std::move(config));
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace tessera::exec::cuda
