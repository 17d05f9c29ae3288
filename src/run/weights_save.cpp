// Writing weights. Convention: the header comes first in a safetensors file and needs only names and shapes, so the numbers are asked for,
// turned and written one parameter at a time: a model is saved in the memory of its largest tensor.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "config/reader.h"
#include "files/atomic_file.h"
#include "models/weights.h"
#include "run/weights.h"

namespace tessera::run {
namespace {

struct Stored {
  std::string name;
  models::Param param;
};

std::string header_of(const std::vector<models::DerivedTensor>& buffers, const std::vector<Stored>& tensors,
                      const models::ModelConfig& model, const std::string& dtype, const std::vector<std::string>& classes,
                      const std::string& preprocess) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}, {"tessera.model", config::model_to_json(model)}};
  if (!classes.empty()) header["__metadata__"]["tessera.classes"] = nlohmann::json(classes).dump();
  if (!preprocess.empty()) header["__metadata__"]["tessera.preprocess"] = preprocess;
  const auto element = static_cast<std::int64_t>(files::dtype_size(dtype));
  std::int64_t at = 0;
  for (const models::DerivedTensor& buffer : buffers) {  // first: 8-byte numbers at multiples of 8, as PyTorch's reader needs them
    const std::int64_t end = at + 8 * ir::elements(buffer.shape);
    header[buffer.name] = {{"dtype", "I64"}, {"shape", buffer.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  for (const Stored& tensor : tensors) {
    const std::int64_t end = at + element * ir::elements(tensor.param.torch_shape);
    header[tensor.name] = {{"dtype", dtype}, {"shape", tensor.param.torch_shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins at a multiple of 8
  return text;
}

}  // namespace

void save_weights(const std::filesystem::path& path, const models::ModelConfig& model,
                  const std::function<std::vector<double>(const std::string& name)>& values, Naming naming, const std::string& dtype,
                  const std::vector<std::string>& classes, const std::string& preprocess) {
  CHECK(dtype == "F32" || dtype == "F64", "weights are saved as F32 or F64, not " + dtype);
  std::vector<Stored> tensors;
  for (models::Param& param : models::parameters(model)) {
    std::string name = naming == Naming::timm ? models::timm_name(model.family, param.name) : param.name;
    tensors.push_back({std::move(name), std::move(param)});
  }
  std::sort(tensors.begin(), tensors.end(), [](const Stored& a, const Stored& b) { return a.name < b.name; });
  // timm computes its buffers itself.
  const std::vector<models::DerivedTensor> buffers =
      naming == Naming::torchvision ? models::derived_tensors(model) : std::vector<models::DerivedTensor>{};
  const std::string header = header_of(buffers, tensors, model, dtype, classes, preprocess);
  const std::uint64_t length = header.size();

  std::uint64_t bytes = 8 + length;
  for (const models::DerivedTensor& buffer : buffers) bytes += 8 * buffer.values.size();
  for (const Stored& tensor : tensors)
    bytes += static_cast<std::uint64_t>(ir::elements(tensor.param.torch_shape)) * files::dtype_size(dtype);
  files::AtomicFile file(path, bytes);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(std::as_bytes(std::span(header)));
  for (const models::DerivedTensor& buffer : buffers) file.write(std::as_bytes(std::span(buffer.values)));
  for (const Stored& tensor : tensors) {
    const std::vector<double> torch = models::to_torch(tensor.param, values(tensor.param.name));
    if (dtype == "F64") {
      file.write(std::as_bytes(std::span(torch)));
    } else {
      const std::vector<float> rounded(torch.begin(), torch.end());
      file.write(std::as_bytes(std::span(rounded)));
    }
  }
  file.commit();
}

}  // namespace tessera::run
