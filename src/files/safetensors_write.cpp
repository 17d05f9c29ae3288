// Writing safetensors. Convention: names, shapes and sizes come from us, so what is wrong with them
// is a CHECK; only the disk is an Error.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "files/atomic_file.h"
#include "files/safetensors.h"

namespace tessera::files {
namespace {

void check_tensor(const NamedTensor& tensor) {
  const std::size_t element = dtype_size(tensor.dtype);
  CHECK(element != 0, fmt::format("tensor '{}': unknown dtype '{}'", tensor.name, tensor.dtype));
  CHECK(tensor.name != "__metadata__", "this name is reserved");
  CHECK(tensor.shape.size() <= max_rank,
        fmt::format("tensor '{}': rank {}", tensor.name, tensor.shape.size()));
  std::uint64_t bytes = element;
  for (const std::int64_t dim : tensor.shape) {
    CHECK(dim >= 0 && bytes <= std::numeric_limits<std::int64_t>::max() /
                                   static_cast<std::uint64_t>(std::max<std::int64_t>(dim, 1)),
          fmt::format("tensor '{}': shape [{}]", tensor.name, fmt::join(tensor.shape, ", ")));
    bytes *= static_cast<std::uint64_t>(dim);
  }
  CHECK(bytes == tensor.bytes.size(),
        fmt::format("tensor '{}': shape [{}] of {} needs {} bytes, got {}", tensor.name,
                    fmt::join(tensor.shape, ", "), tensor.dtype, bytes, tensor.bytes.size()));
}

std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    CHECK(false, "names and metadata of a safetensors file are UTF-8");
  }
  return {};
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::vector<NamedTensor> tensors,
                       const Metadata& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const NamedTensor& a, const NamedTensor& b) {
    const std::size_t size_a = dtype_size(a.dtype), size_b = dtype_size(b.dtype);
    return size_a != size_b ? size_a > size_b : a.name < b.name;
  });
  std::vector<std::string> fields;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata)
      pairs.push_back(json_string(key) + ":" + json_string(value));
    fields.push_back(fmt::format("\"__metadata__\":{{{}}}", fmt::join(pairs, ",")));
  }
  std::uint64_t at = 0;
  std::vector<std::string> names;
  for (const NamedTensor& tensor : tensors) {
    check_tensor(tensor);
    names.push_back(tensor.name);
    fields.push_back(fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                                 json_string(tensor.name), tensor.dtype,
                                 fmt::join(tensor.shape, ","), at, at + tensor.bytes.size()));
    at += tensor.bytes.size();
  }
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end(), "tensor names are unique");

  std::string header = fmt::format("{{{}}}", fmt::join(fields, ","));
  header.resize((header.size() + 7) / 8 * 8, ' ');  // the data begins at a multiple of 8
  CHECK(header.size() <= max_header_bytes, "the header is within the format's limit");
  const std::uint64_t length = header.size();

  AtomicFile file(path, 8 + length + at);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(std::as_bytes(std::span(header)));
  for (const NamedTensor& tensor : tensors) file.write(tensor.bytes);
  file.commit();
}

}  // namespace tessera::files
