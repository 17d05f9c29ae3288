#include "files/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "base/check.h"
#include "files/foreign_weights.h"
#include "files/hash.h"
#include "files/safetensors_header.h"

namespace tessera::files {
namespace {

// Product of the dims and the element size; nothing when it does not fit in a signed 64-bit number.
// A zero dim counts as one here, so that strides of an empty tensor cannot overflow either.
std::optional<std::uint64_t> checked_bytes(const std::vector<std::uint64_t>& shape,
                                           std::uint64_t element) {
  std::uint64_t limit = std::numeric_limits<std::int64_t>::max() / element;
  bool empty = false;
  for (const std::uint64_t dim : shape) {
    empty |= dim == 0;
    const std::uint64_t factor = std::max<std::uint64_t>(dim, 1);
    if (factor > limit) return std::nullopt;
    limit /= factor;
  }
  std::uint64_t bytes = empty ? 0 : element;
  for (const std::uint64_t dim : shape) bytes *= dim;
  return bytes;
}

void check_entry(const HeaderEntry& entry, std::uint64_t data_bytes, Problems& problems) {
  const auto blame = [&](std::string problem) { problems.note(entry.name, std::move(problem)); };
  if (!entry.has_dtype) blame("missing key 'dtype'");
  if (!entry.has_shape) blame("missing key 'shape'");
  if (!entry.has_offsets) blame("missing key 'data_offsets'");
  if (!entry.has_dtype || !entry.has_shape || !entry.has_offsets) return;

  const std::size_t element = dtype_size(entry.dtype);
  if (element == 0) return blame(fmt::format("unknown dtype {}", in_quotes(entry.dtype)));
  const auto bytes = checked_bytes(entry.shape, element);
  if (!bytes)
    return blame(fmt::format("shape [{}] of {} overflows 63 bits", fmt::join(entry.shape, ", "),
                             entry.dtype));
  const std::uint64_t begin = entry.offsets[0], end = entry.offsets[1];
  if (end < begin)
    return blame(fmt::format("data_offsets [{}, {}] end before they begin", begin, end));
  if (end > data_bytes)
    return blame(fmt::format("data_offsets [{}, {}] lie outside the {} data bytes of the file",
                             begin, end, data_bytes));
  if (end - begin != *bytes)
    blame(fmt::format("shape [{}] of {} needs {} bytes, data_offsets [{}, {}] hold {}",
                      fmt::join(entry.shape, ", "), entry.dtype, *bytes, begin, end, end - begin));
}

// The tensors must tile the data exactly: no overlap, no hole, nothing after the last.
void check_tiling(const std::vector<HeaderEntry>& entries, std::uint64_t data_bytes,
                  Problems& problems) {
  std::vector<const HeaderEntry*> order;
  for (const HeaderEntry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->offsets < b->offsets; });
  std::uint64_t at = 0;
  const HeaderEntry* previous = nullptr;
  for (const HeaderEntry* entry : order) {
    const std::uint64_t begin = entry->offsets[0];
    if (begin < at)
      problems.note(entry->name,
                    fmt::format("its bytes overlap those of {}: it begins at {}, that ends at {}",
                                in_quotes(previous->name), begin, at));
    if (begin > at)
      problems.note(
          entry->name,
          fmt::format("hole of {} bytes before it, which belong to no tensor", begin - at));
    if (entry->offsets[1] >= at) {
      at = entry->offsets[1];
      previous = entry;
    }
  }
  if (at < data_bytes)
    problems.note("", fmt::format("{} trailing bytes after the last tensor", data_bytes - at));
}

struct Index {
  TensorPlaces tensors;
  Metadata metadata;
};

// The length of the header, once the file is known to be long enough for it.
std::uint64_t header_length(std::span<const std::byte> front, std::uint64_t file_bytes,
                            std::string_view file) {
  Problems problems(file);
  if (file_bytes < 8) {
    problems.note(
        "", fmt::format("the file has {} bytes, too short for the 8 bytes of the header length",
                        file_bytes));
    problems.raise();
  }
  std::uint64_t length = 0;
  std::memcpy(&length, front.data(), 8);
  if (length == 0)
    problems.note("", "the header length is 0");
  else if (length > max_header_bytes)
    problems.note("", fmt::format("this is no safetensors file, or a damaged one: its first bytes "
                                  "say a header length of {}, at most {} bytes are accepted",
                                  length, max_header_bytes));
  else if (length > file_bytes - 8)
    problems.note("", fmt::format("the header length is {}, but only {} bytes follow it", length,
                                  file_bytes - 8));
  if (problems.any()) problems.raise();
  return length;
}

// `json`: the header, behind which the file has `data_bytes` more.
Index read_index(std::string_view json, std::uint64_t data_bytes, std::string_view file) {
  Problems problems(file);
  const Header header = read_header(json, problems);
  for (const HeaderEntry& entry : header.entries) {
    if (!header.complete && &entry == &header.entries.back()) break;
    if (entry.sound) check_entry(entry, data_bytes, problems);
  }
  if (!problems.any()) check_tiling(header.entries, data_bytes, problems);
  if (problems.any()) problems.raise();
  Index out{{}, header.metadata};
  for (const HeaderEntry& entry : header.entries)
    out.tensors.emplace(entry.name, TensorPlace{.dtype = entry.dtype,
                                                .shape = {entry.shape.begin(), entry.shape.end()},
                                                .offset = 8 + json.size() + entry.offsets[0],
                                                .bytes = entry.offsets[1] - entry.offsets[0]});
  return out;
}

Index read_index(const RegularFile& file) {
  const std::string name = file.path().string();
  const std::vector<std::byte> front =
      file.read(0, std::min<std::uint64_t>(foreign_front, file.size()));
  refuse_foreign(file.path(), front);
  const std::vector<std::byte> json = file.read(8, header_length(front, file.size(), name));
  return read_index({reinterpret_cast<const char*>(json.data()), json.size()},
                    file.size() - 8 - json.size(), name);
}

// Whether one byte alone makes a key other than hash_key: what a flipped bit would do, and hide the
// hash.
bool is_nearly_hash_key(std::string_view key) {
  const std::string_view wanted = hash_key;
  if (key.size() != wanted.size()) return false;
  std::size_t differ = 0;
  for (std::size_t i = 0; i < key.size(); ++i) differ += key[i] != wanted[i];
  return differ == 1;
}

void check_hash(const RegularFile& file, const TensorPlaces& tensors, const Metadata& metadata) {
  const auto refuse = [&](std::string what) {
    throw Error(ErrorKind::weights, std::move(what), file.path().string(),
                "take another copy of the file; if a program changed it on purpose, let that leave "
                "out the metadata '" +
                    std::string(hash_key) + "'");
  };
  for (const auto& [key, value] : metadata)
    if (is_nearly_hash_key(key))
      refuse("damaged: the name of its hash is misspelt, " + in_quotes(key));
  const auto said = metadata.find(hash_key);
  if (said == metadata.end()) return;
  std::map<std::string, std::uint64_t> hashes;
  for (const auto& [name, place] : tensors) {
    Xxh3 hash;
    file.for_each_piece(place.offset, place.bytes,
                        [&](std::span<const std::byte> piece) { hash.add(piece); });
    hashes[name] = hash.value();
  }
  if (const std::string found = content_hash(metadata, tensors, hashes); found != said->second)
    refuse(fmt::format("damaged: its content has the hash {}, and it says {}", found,
                       in_quotes(said->second)));
}

}  // namespace

SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, std::string_view file) {
  const std::uint64_t length = header_length(bytes, bytes.size(), file);
  const Index index = read_index(
      {reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<std::size_t>(length)},
      bytes.size() - 8 - length, file);
  SafetensorsContent content{{}, index.metadata};
  for (const auto& [name, place] : index.tensors)
    content.tensors.emplace(
        name, TensorView{place.dtype, place.shape, bytes.subspan(place.offset, place.bytes)});
  return content;
}

std::string content_hash(const Metadata& metadata, const TensorPlaces& tensors,
                         const std::map<std::string, std::uint64_t>& hashes) {
  Xxh3 hash;
  const auto add =
      [&](std::string_view text) {  // with its length: no two contents are the same text
        hash.add(fmt::format("{} ", text.size()));
        hash.add(text);
      };
  for (const auto& [key, value] : metadata)
    if (key != hash_key) {
      add(key);
      add(value);
    }
  for (const auto& [name, place] : tensors) {
    add(name);
    add(fmt::format("{} [{}] {}", place.dtype, fmt::join(place.shape, ","),
                    hash_text(hashes.at(name))));
  }
  return hash_text(hash.value());
}

Safetensors::Safetensors(const std::filesystem::path& path) : file_(path, ErrorKind::weights) {
  Index index = read_index(file_);
  tensors_ = std::move(index.tensors);
  metadata_ = std::move(index.metadata);
  check_hash(file_, tensors_, metadata_);
}

const TensorPlace& Safetensors::at(const std::string& name) const {
  if (const auto found = tensors_.find(name); found != tensors_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, place] : tensors_) names.push_back(known);
  const std::string near = nearest(name, names);
  throw Error(ErrorKind::weights, fmt::format("tensor {} is not in the file", in_quotes(name)),
              path().string(),
              near.empty() ? "" : fmt::format("did you mean {}?", in_quotes(near)));
}

TensorBytes Safetensors::read(const std::string& name) const {
  const TensorPlace& place = at(name);
  return {place.dtype, place.shape, file_.read(place.offset, place.bytes)};
}

}  // namespace tessera::files
