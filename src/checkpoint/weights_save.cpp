// Writing weights. Convention: the header comes first in a safetensors file and needs only names
// and shapes, so the numbers are asked for, turned and written one parameter at a time: a model is
// saved in the memory of its largest tensor. The hash of it all, which the header carries too, is
// put in its place at the end.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "checkpoint/quantised.h"
#include "checkpoint/weights.h"
#include "config/reader.h"
#include "files/atomic_file.h"
#include "files/hash.h"
#include "models/weights.h"

namespace tessera::run {
namespace {

// A tensor of the file: a parameter, one of its parts that lie one below the other, or a scale of a
// parameter that is quantised.
struct Stored {
  enum Kind { numbers, bytes, scales, input_scale };
  std::string name;
  models::Param param;
  std::int64_t part = 0, parts = 1;
  Kind kind = numbers;
  std::int64_t scale_count = 1;
  std::vector<std::int64_t> shape() const {
    if (kind == input_scale || (kind == scales && scale_count == 1)) return {};
    if (kind == scales) return {scale_count};
    std::vector<std::int64_t> out = param.torch_shape;
    if (parts > 1) out[0] /= parts;
    return out;
  }
};

std::vector<std::string> names_in(Naming naming, const std::string& family,
                                  const std::string& name) {
  if (naming == Naming::hf) return models::hf_names(family, name);
  return {naming == Naming::timm ? models::timm_name(family, name) : name};
}

// timm and Hugging Face compute the indices of Swin themselves.
std::vector<models::DerivedTensor> whole_numbers(const models::ModelConfig& model, Naming naming,
                                                 Extras extras) {
  std::vector<models::DerivedTensor> out;
  if (naming == Naming::torchvision) out = models::derived_tensors(model);
  if (extras == Extras::usual) return out;
  constexpr std::string_view ending = "running_var";
  for (const models::Param& param : models::parameters(model)) {
    if (!param.buffer || !param.name.ends_with(ending)) continue;
    std::string name = names_in(naming, model.family, param.name)[0];
    name.resize(name.size() - ending.size());
    out.push_back({name + "num_batches_tracked", {}, {0}});
  }
  return out;
}

// Numbers before bytes, so that all are aligned; then by name.
std::vector<Stored> tensors_of(const models::ModelConfig& model, Naming naming,
                               const Quantised& quantised) {
  std::vector<Stored> out;
  for (models::Param& param : models::parameters(model)) {
    if (quantised.inputs.contains(param.name)) {
      out.push_back(
          {.name = param.name, .param = param, .part = 0, .parts = 1, .kind = Stored::bytes});
      out.push_back({.name = param.name + std::string(scale_ending),
                     .param = param,
                     .part = 0,
                     .parts = 1,
                     .kind = Stored::scales,
                     .scale_count = quantised.as == "int8" ? param.torch_shape[0] : 1});
      out.push_back({.name = param.name + std::string(input_ending),
                     .param = param,
                     .part = 0,
                     .parts = 1,
                     .kind = Stored::input_scale});
      continue;
    }
    const std::vector<std::string> names = names_in(naming, model.family, param.name);
    const auto parts = static_cast<std::int64_t>(names.size());
    for (std::int64_t i = 0; i < parts; ++i)
      out.push_back(
          {.name = names[static_cast<std::size_t>(i)], .param = param, .part = i, .parts = parts});
  }
  std::sort(out.begin(), out.end(), [](const Stored& a, const Stored& b) {
    return std::pair(a.kind == Stored::bytes, std::string_view(a.name)) <
           std::pair(b.kind == Stored::bytes, std::string_view(b.name));
  });
  return out;
}

// One tensor as the file holds it.
std::vector<std::byte> content(const Stored& tensor,
                               const std::function<std::vector<double>(const std::string&)>& values,
                               const std::string& dtype, const Quantised& quantised) {
  const auto bytes_of = [](const auto& list) {
    const auto bytes = std::as_bytes(std::span(list));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  if (tensor.kind == Stored::input_scale)
    return bytes_of(std::vector{static_cast<float>(quantised.inputs.at(tensor.param.name))});
  std::vector<double> out = models::to_torch(tensor.param, values(tensor.param.name));
  if (tensor.kind == Stored::bytes)
    return quantised_bytes(quantised.as, out, weight_scales(quantised.as, tensor.param, out));
  if (tensor.kind == Stored::scales) out = weight_scales(quantised.as, tensor.param, out);
  if (tensor.parts > 1) {
    const auto size = static_cast<std::ptrdiff_t>(out.size()) / tensor.parts;
    out = {out.begin() + tensor.part * size, out.begin() + (tensor.part + 1) * size};
  }
  if (dtype == "F64" && tensor.kind == Stored::numbers) return bytes_of(out);
  return bytes_of(std::vector<float>(out.begin(), out.end()));
}

constexpr std::string_view no_hash = "0000000000000000";

// Everything of the file but its numbers: known before the first of them is asked for.
struct Layout {
  files::Metadata metadata;
  files::TensorPlaces tensors;  // offsets are counted from the end of the header
  std::string header;           // with no_hash where the hash will be
  std::uint64_t bytes = 0;      // of all tensors
};

Layout layout_of(const std::vector<models::DerivedTensor>& buffers,
                 const std::vector<Stored>& tensors, files::Metadata metadata,
                 const std::string& dtype, const Quantised& quantised) {
  Layout out;
  out.metadata = std::move(metadata);
  nlohmann::ordered_json header;
  header["__metadata__"] = out.metadata;
  header["__metadata__"][files::hash_key] = no_hash;
  const auto add = [&](const std::string& name, const std::string& type,
                       const std::vector<std::int64_t>& shape) {
    const std::uint64_t begin = out.bytes, bytes = files::dtype_size(type) *
                                                   static_cast<std::uint64_t>(ir::elements(shape));
    out.bytes += bytes;
    header[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {begin, out.bytes}}};
    out.tensors[name] = {.dtype = type, .shape = shape, .offset = begin, .bytes = bytes};
  };
  // First: 8-byte numbers at multiples of 8, as PyTorch's reader needs them.
  for (const models::DerivedTensor& buffer : buffers) add(buffer.name, "I64", buffer.shape);
  for (const Stored& tensor : tensors)
    add(tensor.name,
        tensor.kind == Stored::numbers ? dtype
        : tensor.kind == Stored::bytes ? stored_as(quantised.as)
                                       : "F32",
        tensor.shape());
  out.header = header.dump();
  out.header.resize((out.header.size() + 7) / 8 * 8, ' ');  // the data begins at a multiple of 8
  return out;
}

}  // namespace

void save_weights(const std::filesystem::path& path, const models::ModelConfig& model,
                  const std::function<std::vector<double>(const std::string& name)>& values,
                  Naming naming, const std::string& dtype, const std::vector<std::string>& classes,
                  const std::string& preprocess, Extras extras, const Quantised& quantised) {
  CHECK(dtype == "F32" || dtype == "F64", "weights are saved as F32 or F64, not " + dtype);
  const std::vector<Stored> tensors = tensors_of(model, naming, quantised);
  const std::vector<models::DerivedTensor> buffers = whole_numbers(model, naming, extras);
  files::Metadata metadata = {{"format", "pt"}, {"tessera.model", config::model_to_json(model)}};
  if (!classes.empty()) metadata["tessera.classes"] = nlohmann::json(classes).dump();
  if (!preprocess.empty()) metadata["tessera.preprocess"] = preprocess;
  if (!quantised.as.empty()) metadata[std::string(quantised_key)] = quantised.as;
  const Layout layout = layout_of(buffers, tensors, std::move(metadata), dtype, quantised);
  const std::uint64_t length = layout.header.size();

  files::AtomicFile file(path, 8 + length + layout.bytes);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(std::as_bytes(std::span(layout.header)));
  std::map<std::string, std::uint64_t> hashes;
  const auto put = [&](const std::string& name, std::span<const std::byte> bytes) {
    hashes[name] = files::xxh3(bytes);
    file.write(bytes);
  };
  for (const models::DerivedTensor& buffer : buffers)
    put(buffer.name, std::as_bytes(std::span(buffer.values)));
  for (const Stored& tensor : tensors) put(tensor.name, content(tensor, values, dtype, quantised));
  const std::string hash = files::content_hash(layout.metadata, layout.tensors, hashes);
  const std::size_t at = layout.header.find(
      fmt::format("\"{}\":\"{}\"", files::hash_key, no_hash));  // inside a string \" would be \\\"
  CHECK(at != layout.header.npos && hash.size() == no_hash.size(),
        "the header has a place for the hash");
  file.overwrite(8 + at + std::string_view(files::hash_key).size() + 4,
                 std::as_bytes(std::span(hash)));
  file.commit();
}

}  // namespace tessera::run
