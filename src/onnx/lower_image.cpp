// Convolutions and what stands around them: channels first.
#include "onnx/lowering.h"

namespace tessera::onnx {
namespace {

using namespace ir;

void conv(Lowering& to, const Eqn& e) {
  const Conv& attrs = std::get<Conv>(e.attrs);
  CHECK(e.in.size() == 2 && !attrs.relu, "a forward program has plain convolutions");
  const std::int64_t p = attrs.pad;
  const Constant filters = permuted(to.constant(e.in[1]), {3, 2, 0, 1});  // [o,c,k,l]
  to.set_channels_first(
      e.out[0],
      to.node("Conv",
              {to.channels_first(e.in[0]), to.weights(to.program.name_of(e.in[1]), filters)},
              {{"kernel_shape", Dims{filters.shape[2], filters.shape[3]}},
               {"pads", Dims{p, p, p, p}},
               {"strides", Dims{attrs.stride, attrs.stride}}}));
}

void max_pool(Lowering& to, const Eqn& e) {
  const Pool& attrs = std::get<Pool>(e.attrs);
  const std::int64_t p = attrs.pad;
  to.set_channels_first(e.out[0], to.node("MaxPool", {to.channels_first(e.in[0])},
                                          {{"kernel_shape", Dims{attrs.size, attrs.size}},
                                           {"pads", Dims{p, p, p, p}},
                                           {"strides", Dims{attrs.stride, attrs.stride}}}));
}

// x, mean, variance, gain, bias; ONNX reads gain and bias first.
void batch_norm(Lowering& to, const Eqn& e) {
  to.set_channels_first(
      e.out[0], to.node("BatchNormalization",
                        {to.channels_first(e.in[0]), to.name(e.in[3]), to.name(e.in[4]),
                         to.name(e.in[1]), to.name(e.in[2])},
                        {{"epsilon", static_cast<float>(std::get<BatchNorm>(e.attrs).eps)}}));
}

// Pixels to numbers: pixel (1 / (255 deviation)) - mean / deviation.
void normalise(Lowering& to, const Eqn& e) {
  const Normalise& attrs = std::get<Normalise>(e.attrs);
  const std::int64_t channels = to.shape(e.in[0]).back();
  Constant factor{{channels}, {}}, offset{{channels}, {}};
  for (std::int64_t k = 0; k < channels; ++k) {
    const auto of = [&](const std::vector<double>& list) {
      return static_cast<double>(
          static_cast<float>(list[list.size() == 1 ? 0 : static_cast<std::size_t>(k)]));
    };
    factor.values.push_back(static_cast<float>(1.0 / (255.0 * of(attrs.deviation))));
    offset.values.push_back(static_cast<float>(of(attrs.mean) / of(attrs.deviation)));
  }
  const std::string pixels =
      to.node("Cast", {to.name(e.in[0])}, {{"to", static_cast<std::int64_t>(Element::f32)}});
  to.set(e.out[0],
         to.node("Sub", {to.node("Mul", {pixels, to.numbers(factor)}), to.numbers(offset)}));
}

}  // namespace

bool lower_image(Lowering& to, const Eqn& e) {
  switch (e.op) {
    case Op::conv:
      conv(to, e);
      return true;
    case Op::max_pool:
      max_pool(to, e);
      return true;
    case Op::batch_norm_fixed:
      batch_norm(to, e);
      return true;
    case Op::normalise:
      normalise(to, e);
      return true;
    default:
      return false;
  }
}

}  // namespace tessera::onnx
