#include "files/sharded.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/check.h"
#include "files/hash.h"
#include "files/safetensors_header.h"  // in_quotes
#include "files/text.h"

namespace tessera::files {
namespace {

struct Box {
  Extents offset, extent;
  bool operator==(const Box&) const = default;
};

Box intersection(const Box& a, const Box& b) {
  Box out = a;
  for (std::size_t d = 0; d < a.offset.size(); ++d) {
    out.offset[d] = std::max(a.offset[d], b.offset[d]);
    out.extent[d] = std::max<std::int64_t>(
        0, std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]) - out.offset[d]);
  }
  return out;
}

// The index of the element at global position `at` in the row-major storage of `box`.
std::int64_t index_in(const Box& box, const Extents& at) {
  std::int64_t index = 0;
  for (std::size_t d = 0; d < at.size(); ++d) index = index * box.extent[d] + at[d] - box.offset[d];
  return index;
}

// Copies what two boxes share, a run of the last dim at a time; of the file only what lies between
// the first and the last of it is read.
void copy_shared(const Box& from, const RegularFile& file, std::uint64_t begin, const Box& to,
                 std::span<std::byte> target, std::size_t element) {
  const Box common = intersection(from, to);
  for (const std::int64_t n : common.extent)
    if (n == 0) return;
  if (from == to) return file.read(begin, target);
  Extents last = common.offset;
  for (std::size_t d = 0; d < last.size(); ++d) last[d] += common.extent[d] - 1;
  const std::int64_t skipped = index_in(from, common.offset),
                     count = index_in(from, last) + 1 - skipped;
  const std::vector<std::byte> source =
      file.read(begin + static_cast<std::uint64_t>(skipped) * element,
                static_cast<std::uint64_t>(count) * element);
  const std::size_t rank = common.extent.size();
  const std::size_t run =
      (rank == 0 ? 1 : static_cast<std::size_t>(common.extent[rank - 1])) * element;
  Extents at = common.offset;
  for (;;) {
    std::memcpy(target.data() + static_cast<std::size_t>(index_in(to, at)) * element,
                source.data() + static_cast<std::size_t>(index_in(from, at) - skipped) * element,
                run);
    std::size_t d = rank < 2 ? 0 : rank - 1;  // the last dim is in the run
    for (; d > 0; --d) {
      if (++at[d - 1] < common.offset[d - 1] + common.extent[d - 1]) break;
      at[d - 1] = common.offset[d - 1];
    }
    if (d == 0) return;
  }
}

std::uint64_t hash_of(const Safetensors& file, const std::string& key) {
  Xxh3 hash;
  const TensorPlace& place = file.at(key);
  file.file().for_each_piece(place.offset, place.bytes,
                             [&](std::span<const std::byte> piece) { hash.add(piece); });
  return hash.value();
}

}  // namespace

Sharded::Sharded(const std::filesystem::path& folder)
    : folder_(folder),
      manifest_(
          parse_manifest(read_text(folder / manifest_name, max_manifest_bytes, ErrorKind::weights),
                         (folder / manifest_name).string())) {
  for (const auto& [name, tensor] : manifest_.tensors)
    for (const Shard& shard : tensor.shards) {
      auto file = files_.find(shard.file);
      if (file == files_.end())
        file = files_.emplace(shard.file, Safetensors(folder / shard.file)).first;
      const TensorPlace& place = file->second.at(shard.key);
      if (place.dtype != tensor.dtype || place.shape != shard.extent)
        throw Error(
            ErrorKind::weights,
            fmt::format("a shard of tensor {} has another dtype or shape than the manifest says",
                        in_quotes(name)),
            (folder / shard.file).string(), "the checkpoint is damaged");
    }
}

std::uint64_t Sharded::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [name, tensor] : manifest_.tensors)
    for (const Shard& shard : tensor.shards) sum += files_.at(shard.file).at(shard.key).bytes;
  return sum;
}

void Sharded::verify() const {
  std::vector<std::string> damaged;
  for (const auto& [name, tensor] : manifest_.tensors)
    for (const Shard& shard : tensor.shards)
      if (hash_of(files_.at(shard.file), shard.key) != shard.hash)
        damaged.push_back(fmt::format("{} in {}", in_quotes(name), shard.file));
  if (damaged.empty()) return;
  const std::size_t count = damaged.size();
  damaged.resize(std::min<std::size_t>(count, 4));
  throw Error(
      ErrorKind::weights,
      fmt::format(
          "damaged, the hash does not fit: tensor {}{}", join(damaged, ", "),
          count > damaged.size() ? fmt::format(" and {} more", count - damaged.size()) : ""),
      folder_.string());
}

const GlobalTensor& Sharded::at(const std::string& name) const {
  if (const auto found = manifest_.tensors.find(name); found != manifest_.tensors.end())
    return found->second;
  std::vector<std::string> names;
  for (const auto& [known, tensor] : manifest_.tensors) names.push_back(known);
  const std::string near = nearest(name, names);
  throw Error(ErrorKind::weights,
              fmt::format("tensor {} is not in the checkpoint", in_quotes(name)), folder_.string(),
              near.empty() ? "" : fmt::format("did you mean {}?", in_quotes(near)));
}

std::vector<std::byte> Sharded::read(const std::string& name, const Extents& offset,
                                     const Extents& extent) const {
  const GlobalTensor& tensor = at(name);
  CHECK(offset.size() == tensor.shape.size() && extent.size() == tensor.shape.size(),
        "a slice of " + name + " has its number of dims");
  std::size_t bytes = dtype_size(tensor.dtype);
  const std::size_t element = bytes;
  for (std::size_t d = 0; d < extent.size(); ++d) {
    CHECK(offset[d] >= 0 && extent[d] >= 0 && offset[d] <= tensor.shape[d] &&
              extent[d] <= tensor.shape[d] - offset[d],
          "a slice of " + name + " lies inside it");
    bytes *= static_cast<std::size_t>(extent[d]);
  }
  std::vector<std::byte> out(bytes);
  for (const Shard& shard : tensor.shards) {
    const Safetensors& file = files_.at(shard.file);
    copy_shared({shard.offset, shard.extent}, file.file(), file.at(shard.key).offset,
                {offset, extent}, out, element);
  }
  return out;
}

std::vector<std::byte> Sharded::read(const std::string& name) const {
  const Extents& shape = at(name).shape;
  return read(name, Extents(shape.size(), 0), shape);
}

std::map<std::string, GlobalTensor> write_shards(const std::filesystem::path& folder, int rank,
                                                 const std::vector<ShardBytes>& shards) {
  const std::string file = fmt::format("rank-{}.safetensors", rank);
  std::map<std::string, GlobalTensor> out;
  std::vector<NamedTensor> tensors;
  for (const ShardBytes& s : shards) {
    GlobalTensor& tensor =
        out.try_emplace(s.name, GlobalTensor{s.dtype, s.shape, {}}).first->second;
    // A rank may hold several boxes of one tensor (a cut through a flat bucket); each has a key of
    // its own.
    const std::string key =
        tensor.shards.empty() ? s.name : fmt::format("{}#{}", s.name, tensor.shards.size());
    tensor.shards.push_back(
        {.file = file, .key = key, .offset = s.offset, .extent = s.extent, .hash = xxh3(s.bytes)});
    tensors.push_back({.name = key, .dtype = s.dtype, .shape = s.extent, .bytes = s.bytes});
  }
  write_safetensors(folder / file, std::move(tensors));
  return out;
}

}  // namespace tessera::files
