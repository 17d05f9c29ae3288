#include "checkpoint/quantised.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "base/float8.h"
#include "models/weights.h"

namespace tessera::run {
namespace {

[[noreturn]] void refuse(const files::Safetensors& file, const std::string& what) {
  throw Error(ErrorKind::weights, what, file.path().string(),
              "make the file again with `tessera quantize`");
}

bool is_byte_type(std::string_view dtype) { return dtype == "I8" || dtype == "F8_E4M3"; }

std::vector<double> scales_in(const files::Safetensors& file, const std::string& name,
                              std::int64_t count) {
  if (!file.tensors().contains(name)) refuse(file, fmt::format("the tensor '{}' is missing", name));
  const files::TensorPlace& place = file.at(name);
  const ir::Shape expected = count == 1 ? ir::Shape{} : ir::Shape{count};
  if (place.dtype != "F32" || place.shape != expected)
    refuse(file, fmt::format("'{}' is {} {}; expected F32 {}", name, place.dtype,
                             ir::to_string(place.shape), ir::to_string(expected)));
  std::vector<double> out = files::to_doubles(file.read(name), name);
  for (const double scale : out)
    if (!(scale > 0) || !std::isfinite(scale))
      refuse(file, fmt::format("'{}' holds {}; a scale is above 0 and finite", name, scale));
  return out;
}

}  // namespace

std::string quantised_as(const files::Safetensors& file) {
  const auto found = file.metadata().find(std::string(quantised_key));
  if (found == file.metadata().end()) return "";
  if (found->second != "int8" && found->second != "fp8")
    throw Error(ErrorKind::weights,
                fmt::format("the file says that it is quantised as '{}'", found->second),
                file.path().string(), "this version reads int8 and fp8");
  return found->second;
}

bool is_weight_type(const files::Safetensors& file, const std::string& tensor) {
  const std::string& dtype = file.at(tensor).dtype;
  if (is_byte_type(dtype)) {
    const std::string as = quantised_as(file);
    return !as.empty() && dtype == stored_as(as);
  }
  return dtype == "F64" || dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

bool is_scale(const files::Safetensors& file, std::string_view tensor) {
  if (quantised_as(file).empty()) return false;
  for (const std::string_view ending : {input_ending, scale_ending})
    if (tensor.ends_with(ending) &&
        file.tensors().contains(std::string(tensor.substr(0, tensor.size() - ending.size()))))
      return true;
  return false;
}

std::vector<double> weights_in(const files::Safetensors& file, const std::string& tensor) {
  const files::TensorPlace& place = file.at(tensor);
  if (!is_byte_type(place.dtype)) return files::to_doubles(file.read(tensor), tensor);
  std::vector<double> values;
  if (place.dtype == "I8") {
    values = files::to_doubles(file.read(tensor), tensor);
  } else {
    for (const std::byte byte : file.read(tensor).bytes)
      values.push_back(static_cast<double>(from_float8(static_cast<std::uint8_t>(byte), e4m3)));
  }
  const bool by_row = place.dtype == "I8" && !place.shape.empty();
  const std::vector<double> scales =
      scales_in(file, tensor + std::string(scale_ending), by_row ? place.shape[0] : 1);
  const std::size_t columns = scales.empty() ? 1 : values.size() / scales.size();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= scales[i / columns];
  return values;
}

Quantised quantised_of(const files::Safetensors& file, const models::ModelConfig& model) {
  Quantised out;
  out.as = quantised_as(file);
  if (out.as.empty()) return out;
  for (const models::Param& p : models::parameters(model)) {
    if (!models::is_quantisable(model, p, out.as)) continue;
    if (!file.tensors().contains(p.name))
      refuse(file,
             fmt::format("a quantised file has torchvision's names, and '{}' is missing", p.name));
    if (file.at(p.name).dtype != stored_as(out.as))
      refuse(file, fmt::format("the file says that it is quantised as {}, but '{}' is {}", out.as,
                               p.name, file.at(p.name).dtype));
    scales_in(file, p.name + std::string(scale_ending), out.as == "int8" ? p.torch_shape[0] : 1);
    out.inputs[p.name] = scales_in(file, p.name + std::string(input_ending), 1)[0];
  }
  if (out.inputs.empty())
    refuse(file, fmt::format("the file says that it is quantised as {}, but a {} has no layers "
                             "that could be",
                             out.as, model.family));
  return out;
}

std::string stored_as(std::string_view as) { return as == "int8" ? "I8" : "F8_E4M3"; }

std::vector<std::byte> quantised_bytes(std::string_view as, std::span<const double> values,
                                       std::span<const double> scales) {
  const std::size_t columns = values.size() / scales.size();
  std::vector<std::byte> out(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    // As the op quantize does it, from f32.
    const float v = static_cast<float>(values[i]) / static_cast<float>(scales[i / columns]);
    out[i] = static_cast<std::byte>(as == "int8" ? static_cast<std::uint8_t>(to_int8(v))
                                                 : to_float8(v, e4m3));
  }
  return out;
}

}  // namespace tessera::run
