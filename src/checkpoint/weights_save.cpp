// Writing weights. Convention: the header comes first in a safetensors file and needs only names
// and shapes, so the numbers are asked for, turned and written one parameter at a time: a model is
// saved in the memory of its largest tensor. The hash of it all, which the header carries too, is
// put in its place at the end.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "checkpoint/weights.h"
#include "config/reader.h"
#include "files/atomic_file.h"
#include "files/hash.h"
#include "models/weights.h"

namespace tessera::run {
namespace {

// A tensor of the file: a parameter, or one of its parts that lie one below the other.
struct Stored {
  std::string name;
  models::Param param;
  std::int64_t part = 0, parts = 1;
  std::vector<std::int64_t> shape() const {
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
                 const std::string& dtype) {
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
    out.tensors[name] = {type, shape, begin, bytes};
  };
  // First: 8-byte numbers at multiples of 8, as PyTorch's reader needs them.
  for (const models::DerivedTensor& buffer : buffers) add(buffer.name, "I64", buffer.shape);
  for (const Stored& tensor : tensors) add(tensor.name, dtype, tensor.shape());
  out.header = header.dump();
  out.header.resize((out.header.size() + 7) / 8 * 8, ' ');  // the data begins at a multiple of 8
  return out;
}

}  // namespace

void save_weights(const std::filesystem::path& path, const models::ModelConfig& model,
                  const std::function<std::vector<double>(const std::string& name)>& values,
                  Naming naming, const std::string& dtype, const std::vector<std::string>& classes,
                  const std::string& preprocess, Extras extras) {
  CHECK(dtype == "F32" || dtype == "F64", "weights are saved as F32 or F64, not " + dtype);
  std::vector<Stored> tensors;
  for (models::Param& param : models::parameters(model)) {
    const std::vector<std::string> names = names_in(naming, model.family, param.name);
    const auto parts = static_cast<std::int64_t>(names.size());
    for (std::int64_t i = 0; i < parts; ++i)
      tensors.push_back({names[static_cast<std::size_t>(i)], param, i, parts});
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const Stored& a, const Stored& b) { return a.name < b.name; });
  const std::vector<models::DerivedTensor> buffers = whole_numbers(model, naming, extras);
  files::Metadata metadata = {{"format", "pt"}, {"tessera.model", config::model_to_json(model)}};
  if (!classes.empty()) metadata["tessera.classes"] = nlohmann::json(classes).dump();
  if (!preprocess.empty()) metadata["tessera.preprocess"] = preprocess;
  const Layout layout = layout_of(buffers, tensors, std::move(metadata), dtype);
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
  for (const Stored& tensor : tensors) {
    std::vector<double> torch = models::to_torch(tensor.param, values(tensor.param.name));
    if (tensor.parts > 1) {
      const auto size = static_cast<std::ptrdiff_t>(torch.size()) / tensor.parts;
      torch = {torch.begin() + tensor.part * size, torch.begin() + (tensor.part + 1) * size};
    }
    if (dtype == "F64") {
      put(tensor.name, std::as_bytes(std::span(torch)));
    } else {
      const std::vector<float> rounded(torch.begin(), torch.end());
      put(tensor.name, std::as_bytes(std::span(rounded)));
    }
  }
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
