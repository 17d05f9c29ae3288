// A convolution as a graph of cuDNN's operations: the convolution alone, or with what follows it in
// an evaluation, y = relu(conv scale + offset), whose steps in between are never stored.
// Convention: L is Dnn::Library, as in dnn_descriptor.h.
#pragma once

#include <array>
#include <vector>

#include "exec/cuda/products/dnn_descriptor.h"

namespace tessera::exec::cuda {

// The attribute that takes the handle; newer headers mark its name as deprecated, older libraries
// insist on it.
inline constexpr auto graph_handle = static_cast<cudnnBackendAttributeName_t>(800);

inline constexpr std::int64_t images_id = 1, filters_id = 2, results_id = 3, scale_id = 4,
                              offset_id = 5, first_virtual_id = 6;

inline cudnnDataType_t dnn_type(ir::DType dtype) {
  return dtype == ir::DType::bf16  ? CUDNN_DATA_BFLOAT16
         : dtype == ir::DType::f16 ? CUDNN_DATA_HALF
                                   : CUDNN_DATA_FLOAT;
}

// Writes the descriptors of one graph behind others; each is known by its place.
template <class L>
class DnnGraph {
 public:
  DnnGraph(const L& library, std::vector<Descriptor<L>>& parts)
      : library_(library), parts_(parts) {}

  bool good() const { return good_; }

  // Dims in cuDNN's order (n, c, h, w); channels are innermost in memory. Virtual: never stored.
  int tensor(std::int64_t id, const std::array<std::int64_t, 4>& dims, cudnnDataType_t type,
             std::int64_t alignment, bool is_virtual = false) {
    const std::array<std::int64_t, 4> strides = {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1],
                                                 dims[1]};
    Descriptor<L>& out = add(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    out.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    out.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data());
    out.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
    out.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    out.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (is_virtual) out.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    return done(out);
  }

  void convolve(const DnnConv& c, int images, int filters, int results) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const std::int64_t dims = 2;
    const std::array<std::int64_t, 2> pads = {c.pad, c.pad}, strides = {c.stride, c.stride},
                                      dilations = {1, 1};
    Descriptor<L>& conv = add(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    conv.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    conv.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    conv.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
    conv.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads.data());
    conv.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads.data());
    conv.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations.data());
    conv.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides.data());
    const int described = done(conv);
    if (!good_) return;
    const OperationNames names = names_of(c.pass);
    const float one = 1, zero = 0;
    Descriptor<L>& operation = add(names.type);
    operation.set(names.images, part(images));
    operation.set(names.filters, part(filters));
    operation.set(names.results, part(results));
    operation.set(names.conv, part(described));
    operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1, &one);
    operation.set(names.beta, CUDNN_TYPE_FLOAT, 1, &zero);
    operations_.push_back(done(operation));
  }

  // y = x op b, or op x where b < 0, in f32.
  void pointwise(cudnnPointwiseMode_t mode, int x, int b, int y) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    Descriptor<L>& what = add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    what.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    what.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    const int described = done(what);
    if (!good_) return;
    Descriptor<L>& operation = add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, part(described));
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, part(x));
    if (b >= 0) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, part(b));
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, part(y));
    operations_.push_back(done(operation));
  }

  // The place of the graph; -1: the library does not take it.
  int finish() {
    if (!good_) return -1;
    std::vector<cudnnBackendDescriptor_t> handles;
    for (const int operation : operations_) handles.push_back(part(operation).get());
    Descriptor<L>& graph = add(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(graph_handle, CUDNN_TYPE_HANDLE, 1, &library_.handle);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              static_cast<std::int64_t>(handles.size()), handles.data());
    const int place = done(graph);
    return good_ ? place : -1;
  }

 private:
  Descriptor<L>& add(cudnnBackendDescriptorType_t type) {
    return parts_.emplace_back(library_, type);
  }
  int done(Descriptor<L>& descriptor) {
    good_ = good_ && descriptor.finalize();
    return static_cast<int>(parts_.size()) - 1;
  }
  const Descriptor<L>& part(int place) const { return parts_[static_cast<std::size_t>(place)]; }

  const L& library_;
  std::vector<Descriptor<L>>& parts_;
  std::vector<int> operations_;
  bool good_ = true;
};

// The place of the graph among `parts`; -1: the library does not take it.
template <class L>
int describe_conv(const L& library, const DnnConv& c, std::vector<Descriptor<L>>& parts) {
  parts.reserve(parts.size() + 32);
  DnnGraph<L> graph(library, parts);
  const cudnnDataType_t type = dnn_type(c.dtype);
  const std::array<std::int64_t, 4> results = {c.b, c.o, c.p, c.q}, channel = {1, c.o, 1, 1};
  const int x = graph.tensor(images_id, {c.b, c.c, c.h, c.w}, type, c.align_images),
            f = graph.tensor(filters_id, {c.o, c.c, c.k, c.l}, type, c.align_filters),
            y = graph.tensor(results_id, results, type, c.align_results);
  if (!graph.good()) return -1;
  if (!c.finishes) {
    graph.convolve(c, x, f, y);
    return graph.finish();
  }
  std::int64_t id = first_virtual_id;
  const auto between = [&] { return graph.tensor(id++, results, CUDNN_DATA_FLOAT, 16, true); };
  const int scale = graph.tensor(scale_id, channel, CUDNN_DATA_FLOAT, 16),
            offset = graph.tensor(offset_id, channel, CUDNN_DATA_FLOAT, 16);
  const int sum = between(), scaled = between(), moved = c.relu ? between() : y;
  if (!graph.good()) return -1;
  graph.convolve(c, x, f, sum);
  if (graph.good()) graph.pointwise(CUDNN_POINTWISE_MUL, sum, scale, scaled);
  if (graph.good()) graph.pointwise(CUDNN_POINTWISE_ADD, scaled, offset, moved);
  if (graph.good() && c.relu) graph.pointwise(CUDNN_POINTWISE_RELU_FWD, moved, -1, y);
  return graph.finish();
}

}  // namespace tessera::exec::cuda
