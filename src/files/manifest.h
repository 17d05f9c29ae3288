// The manifest of a checkpoint: every global tensor with the shards that hold it, and a JSON object
// of everything else. Convention: a manifest that parses is sound: its own hash fits, names are
// plain, and the shards of a tensor tile it exactly, so that any layout can be assembled from any
// other. The format: docs/checkpoints.md.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::files {

using Extents = std::vector<std::int64_t>;

// A box of a global tensor, stored as the tensor `key` of `file`, which lies beside the manifest.
struct Shard {
  std::string file, key;
  Extents offset, extent;
  std::uint64_t hash = 0;  // of its bytes, row-major
};

struct GlobalTensor {
  std::string dtype;  // as in safetensors: "F32", ...
  Extents shape;
  std::vector<Shard> shards;
};

struct Manifest {
  std::map<std::string, GlobalTensor> tensors;
  nlohmann::json state = nlohmann::json::object();
};

inline constexpr std::int64_t manifest_format = 2;
inline constexpr std::size_t max_manifest_bytes = std::size_t{64} << 20,
                             max_shards = 4096;  // of one tensor

std::string print(const Manifest& manifest);
// Error(weights) with the reason; `where` names the file.
Manifest parse_manifest(std::string_view text, const std::string& where);

}  // namespace tessera::files
