#include "files/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "files/hash.h"
#include "files/json.h"
#include "files/safetensors.h"
#include "files/safetensors_header.h"  // in_quotes

namespace tessera::files {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& where, const std::string& problem) {
  throw Error(ErrorKind::weights, problem, where, "the checkpoint is damaged or not ours");
}

json parsed(std::string_view text, const std::string& where) {
  json document = parse_json(text);
  if (!document.is_object())
    refuse(where,
           fmt::format("the manifest is not a JSON object of at most {} levels", json_levels));
  return document;
}

// The manifest without its own hash, in the one form that JSON values have here (keys sorted, no
// spaces).
std::string seal(json document) {
  document.erase("hash");
  return hash_text(
      xxh3(std::string_view(document.dump(-1, ' ', false, json::error_handler_t::replace))));
}

struct ManifestReader {
  const std::string& where;

  const json& at(const json& object, const char* key, const std::string& of) const {
    if (!object.is_object() || !object.contains(key))
      refuse(where, fmt::format("{} has no '{}'", of, key));
    return object.at(key);
  }
  std::string text(const json& object, const char* key, const std::string& of) const {
    const json& value = at(object, key, of);
    if (!value.is_string()) refuse(where, fmt::format("'{}' of {} is not a text", key, of));
    return value.get<std::string>();
  }
  Extents extents(const json& object, const char* key, const std::string& of) const {
    const json& value = at(object, key, of);
    if (!value.is_array() || value.size() > max_rank)
      refuse(where, fmt::format("'{}' of {} is not a list of dims", key, of));
    Extents out;
    for (const json& dim : value) {
      if (!dim.is_number_integer() ||
          (dim.is_number_unsigned() && dim.get<std::uint64_t>() > INT64_MAX) ||
          dim.get<std::int64_t>() < 0)
        refuse(where, fmt::format("'{}' of {} holds something else than whole numbers from 0 on",
                                  key, of));
      out.push_back(dim.get<std::int64_t>());
    }
    return out;
  }
  std::uint64_t hash(const json& object, const std::string& of) const {
    const std::string digits = text(object, "xxh3", of);
    if (digits.size() != 16 || digits.find_first_not_of("0123456789abcdef") != digits.npos)
      refuse(where, fmt::format("'xxh3' of {} is not 16 hexadecimal digits", of));
    return std::stoull(digits, nullptr, 16);
  }

  // Elements of a box; nothing beyond 63 bits of bytes is accepted. A zero dim counts as one on the
  // way, as in safetensors.
  std::int64_t volume(const Extents& extent, std::size_t element, const std::string& of) const {
    std::int64_t limit =
                     std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(element),
                 out = 1;
    for (const std::int64_t dim : extent) {
      const std::int64_t factor = std::max<std::int64_t>(dim, 1);
      if (factor > limit) refuse(where, fmt::format("the shape of {} overflows 63 bits", of));
      limit /= factor;
      out *= dim;
    }
    return out;
  }

  GlobalTensor tensor(const std::string& name, const json& source) const {
    const std::string of = "tensor " + in_quotes(name);
    GlobalTensor out{text(source, "dtype", of), extents(source, "shape", of), {}};
    const std::size_t element = dtype_size(out.dtype);
    if (element == 0)
      refuse(where, fmt::format("{} has the unknown dtype {}", of, in_quotes(out.dtype)));
    const std::int64_t whole = volume(out.shape, element, of);
    const json& shards = at(source, "shards", of);
    if (!shards.is_array() || shards.size() > max_shards)
      refuse(where, fmt::format("'shards' of {} is not a list of shards", of));
    std::int64_t held = 0;
    for (const json& entry : shards) {
      Shard shard{.file = text(entry, "file", of),
                  .key = text(entry, "key", of),
                  .offset = extents(entry, "offset", of),
                  .extent = extents(entry, "extent", of),
                  .hash = hash(entry, of)};
      const bool plain = shard.file.size() <= 64 && shard.file.starts_with("rank-") &&
                         shard.file.ends_with(".safetensors") &&
                         shard.file.find('/') == shard.file.npos;
      if (!plain)
        refuse(where, fmt::format("{} lies in a file with the impossible name {}", of,
                                  in_quotes(shard.file)));
      if (shard.offset.size() != out.shape.size() || shard.extent.size() != out.shape.size())
        refuse(where, fmt::format("a shard of {} has another number of dims", of));
      for (std::size_t d = 0; d < out.shape.size(); ++d)
        if (shard.offset[d] > out.shape[d] || shard.extent[d] > out.shape[d] - shard.offset[d])
          refuse(where, fmt::format("a shard of {} lies outside it", of));
      held += volume(shard.extent, element,
                     of);  // within the tensor, so the sum of max_shards fits after the check below
      if (held > whole) refuse(where, fmt::format("the shards of {} overlap", of));
      for (const Shard& other : out.shards)
        if (overlap(shard, other)) refuse(where, fmt::format("the shards of {} overlap", of));
      out.shards.push_back(std::move(shard));
    }
    if (held != whole)
      refuse(where, fmt::format("the shards of {} hold {} of its {} elements", of, held, whole));
    return out;
  }

  static bool overlap(const Shard& a, const Shard& b) {
    for (std::size_t d = 0; d < a.extent.size(); ++d)
      if (std::max(a.offset[d], b.offset[d]) >=
          std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]))
        return false;
    return true;
  }
};

}  // namespace

std::string print(const Manifest& manifest) {
  json tensors = json::object();
  for (const auto& [name, tensor] : manifest.tensors) {
    json shards = json::array();
    for (const Shard& s : tensor.shards)
      shards.push_back({{"file", s.file},
                        {"key", s.key},
                        {"offset", s.offset},
                        {"extent", s.extent},
                        {"xxh3", hash_text(s.hash)}});
    tensors[name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"shards", std::move(shards)}};
  }
  json document = {
      {"format", manifest_format}, {"state", manifest.state}, {"tensors", std::move(tensors)}};
  // For people: the state spread out, a line per tensor.
  const auto text = [](const json& value, int indent) {
    return value.dump(indent, ' ', false, json::error_handler_t::replace);
  };
  std::string out =
      fmt::format("{{\"format\": {}, \"hash\": \"{}\",\n\"state\": {},\n\"tensors\": {{",
                  manifest_format, seal(document), text(document["state"], 1));
  const char* between = "\n";
  for (const auto& [name, tensor] : document["tensors"].items()) {
    out += between + text(name, -1) + ": " + text(tensor, -1);
    between = ",\n";
  }
  return out + "}}\n";
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  if (text.size() > max_manifest_bytes)
    refuse(where, fmt::format("the manifest has {} bytes, which no checkpoint needs", text.size()));
  json document = parsed(text, where);
  const ManifestReader reader{where};
  const json& format = reader.at(document, "format", "the manifest");
  if (format != manifest_format)
    refuse(where, fmt::format("the manifest has format {}, this version reads {}",
                              format.is_number() ? format.dump() : "?", manifest_format));
  if (reader.text(document, "hash", "the manifest") != seal(document))
    refuse(where, "the manifest is damaged: its hash does not fit");
  Manifest out;
  const json& tensors = reader.at(document, "tensors", "the manifest");
  if (!tensors.is_object() || tensors.size() > max_tensors)
    refuse(where, "'tensors' of the manifest is not an object of tensors");
  for (const auto& [name, source] : tensors.items())
    out.tensors.emplace(name, reader.tensor(name, source));
  out.state = reader.at(document, "state", "the manifest");
  if (!out.state.is_object()) refuse(where, "'state' of the manifest is not an object");
  return out;
}

}  // namespace tessera::files
