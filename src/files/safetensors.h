// Safetensors files: 8 bytes of little-endian header length, a JSON header {name: {dtype, shape,
// data_offsets}}, then the bytes. Convention: a file is checked completely (every offset, size and
// name, and its hash where it carries one) before any tensor is handed out. Tensors are read when
// they are asked for, one at a time; a view of a file in memory may be unaligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/regular_file.h"

namespace tessera::files {

struct TensorView {
  std::string dtype;  // "F64", "F32", "BF16", "F16", "I64", "I32", "U8", "BOOL", ...: a name of
                      // dtype_size()
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

// Where a tensor lies in its file.
struct TensorPlace {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0, bytes = 0;
};

// A tensor that was read.
struct TensorBytes {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
  operator TensorView() const { return {dtype, shape, bytes}; }
};

using TensorMap = std::map<std::string, TensorView>;
using TensorPlaces = std::map<std::string, TensorPlace>;
using Metadata = std::map<std::string, std::string>;

// Limits that no honest file exceeds; beyond them a file is refused before anything is allocated
// for it.
inline constexpr std::uint64_t max_header_bytes = 100'000'000;
inline constexpr std::size_t max_tensors = 1'000'000;
inline constexpr std::size_t max_rank = 16;

struct SafetensorsContent {
  TensorMap tensors;
  Metadata metadata;
};

// Checks and indexes the bytes of a whole file; `file` names it in messages. Throws Error(weights)
// with all problems found.
SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, std::string_view file);

// The hash of a weight file covers, whoever wrote it and in whatever order, the metadata but the
// hash itself, and of every tensor its name, dtype, shape and the hash of its bytes.
inline constexpr const char* hash_key = "tessera.xxh3";  // of the metadata
std::string content_hash(const Metadata& metadata, const TensorPlaces& tensors,
                         const std::map<std::string, std::uint64_t>& hashes);

class Safetensors {
 public:
  // Error(weights) also when the file carries a hash (hash_key) and does not have it.
  explicit Safetensors(const std::filesystem::path& path);

  const TensorPlaces& tensors() const { return tensors_; }
  const Metadata& metadata() const { return metadata_; }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  // Throws Error(weights) with the nearest name when there is none.
  const TensorPlace& at(const std::string& name) const;
  // Error(weights) also when the disk cannot read it.
  TensorBytes read(const std::string& name) const;
  const RegularFile& file() const { return file_; }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  RegularFile file_;
  TensorPlaces tensors_;
  Metadata metadata_;
};

struct NamedTensor {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

// The same tensors and metadata give the same bytes. Tensors lie by descending element size, then
// name, so every one is aligned. Throws Error(disk) when it cannot be written; then the previous
// file is intact.
void write_safetensors(const std::filesystem::path& path, std::vector<NamedTensor> tensors,
                       const Metadata& metadata = {});

// Bytes per element; 0 for a name we do not know.
std::size_t dtype_size(std::string_view dtype);

// The numbers of a tensor, from any float or integer dtype but the 8-bit floats; `name` is for the
// message of Error(weights).
std::vector<double> to_doubles(const TensorView& view, std::string_view name = {});
std::vector<float> to_floats(const TensorView& view, std::string_view name = {});

}  // namespace tessera::files
