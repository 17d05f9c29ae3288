// A folder of global tensors in shards: manifest.json and the safetensors files it names. Any slice
// of any tensor can be read, however it was cut when it was written. Convention: opening proves
// that every shard is there with its shape; verify() proves every byte.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "files/manifest.h"
#include "files/safetensors.h"

namespace tessera::files {

class Sharded {
 public:
  // Error(weights) when the folder is not a sound checkpoint.
  explicit Sharded(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  std::uint64_t bytes() const;  // of all tensors
  // Error(weights) naming the shards whose bytes do not have their hash.
  void verify() const;

  const GlobalTensor& at(
      const std::string& name) const;  // Error(weights) with the nearest name when there is none
  // The box [offset, offset + extent) of a tensor, row-major; the box must lie inside it.
  std::vector<std::byte> read(const std::string& name, const Extents& offset,
                              const Extents& extent) const;
  std::vector<std::byte> read(const std::string& name) const;  // all of it

 private:
  std::filesystem::path folder_;
  Manifest manifest_;
  std::map<std::string, Safetensors> files_;
};

// The argument of write_sharded(): a shard with its bytes, which `box.file` and `box.hash` do not
// describe yet.
struct ShardBytes {
  std::string name, dtype;  // of the global tensor
  Extents shape;            // global
  Extents offset, extent;   // of this shard
  std::span<const std::byte> bytes;
};

// Writes one rank's file into `folder` and returns its tensors, hashed; the caller joins those of
// all ranks and writes the manifest last.
std::map<std::string, GlobalTensor> write_shards(const std::filesystem::path& folder, int rank,
                                                 const std::vector<ShardBytes>& shards);
// The name of the manifest in a folder.
inline constexpr const char* manifest_name = "manifest.json";

}  // namespace tessera::files
