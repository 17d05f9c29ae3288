#include "files/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "base/check.h"
#include "files/safetensors_header.h"

namespace tessera::files {
namespace {

// Product of the dims and the element size; nothing when it does not fit in a signed 64-bit number. A zero dim counts as one here, so that
// strides of an empty tensor cannot overflow either.
std::optional<std::uint64_t> checked_bytes(const std::vector<std::uint64_t>& shape, std::uint64_t element) {
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
  if (!bytes) return blame(fmt::format("shape [{}] of {} overflows 63 bits", fmt::join(entry.shape, ", "), entry.dtype));
  const std::uint64_t begin = entry.offsets[0], end = entry.offsets[1];
  if (end < begin) return blame(fmt::format("data_offsets [{}, {}] end before they begin", begin, end));
  if (end > data_bytes)
    return blame(fmt::format("data_offsets [{}, {}] lie outside the {} data bytes of the file", begin, end, data_bytes));
  if (end - begin != *bytes)
    blame(fmt::format("shape [{}] of {} needs {} bytes, data_offsets [{}, {}] hold {}", fmt::join(entry.shape, ", "), entry.dtype, *bytes,
                      begin, end, end - begin));
}

// The tensors must tile the data exactly: no overlap, no hole, nothing after the last.
void check_tiling(const std::vector<HeaderEntry>& entries, std::uint64_t data_bytes, Problems& problems) {
  std::vector<const HeaderEntry*> order;
  for (const HeaderEntry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->offsets < b->offsets; });
  std::uint64_t at = 0;
  const HeaderEntry* previous = nullptr;
  for (const HeaderEntry* entry : order) {
    const std::uint64_t begin = entry->offsets[0];
    if (begin < at)
      problems.note(entry->name,
                    fmt::format("its bytes overlap those of {}: it begins at {}, that ends at {}", in_quotes(previous->name), begin, at));
    if (begin > at) problems.note(entry->name, fmt::format("hole of {} bytes before it, which belong to no tensor", begin - at));
    if (entry->offsets[1] >= at) at = entry->offsets[1], previous = entry;
  }
  if (at < data_bytes) problems.note("", fmt::format("{} trailing bytes after the last tensor", data_bytes - at));
}

}  // namespace

SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, std::string_view file) {
  Problems problems(file);
  if (bytes.size() < 8) {
    problems.note("", fmt::format("the file has {} bytes, too short for the 8 bytes of the header length", bytes.size()));
    problems.raise();
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  if (length == 0)
    problems.note("", "the header length is 0");
  else if (length > max_header_bytes)
    problems.note("", fmt::format("the header length is {}, at most {} bytes are accepted", length, max_header_bytes));
  else if (length > bytes.size() - 8)
    problems.note("", fmt::format("the header length is {}, but only {} bytes follow it", length, bytes.size() - 8));
  if (problems.any()) problems.raise();

  const auto data = bytes.subspan(8 + length);
  const Header header = read_header({reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<std::size_t>(length)}, problems);
  for (const HeaderEntry& entry : header.entries) {
    if (!header.complete && &entry == &header.entries.back()) break;
    if (entry.sound) check_entry(entry, data.size(), problems);
  }
  if (!problems.any()) check_tiling(header.entries, data.size(), problems);
  if (problems.any()) problems.raise();

  SafetensorsContent content;
  content.metadata = header.metadata;
  for (const HeaderEntry& entry : header.entries)
    content.tensors.emplace(entry.name, TensorView{entry.dtype,
                                                   {entry.shape.begin(), entry.shape.end()},
                                                   data.subspan(entry.offsets[0], entry.offsets[1] - entry.offsets[0])});
  return content;
}

Safetensors::Safetensors(const std::filesystem::path& path)
    : path_(path), file_(path, ErrorKind::weights), content_(parse_safetensors(file_.bytes(), path.string())) {}

const TensorView& Safetensors::at(const std::string& name) const {
  if (const auto found = content_.tensors.find(name); found != content_.tensors.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, view] : content_.tensors) names.push_back(known);
  const std::string near = nearest(name, names);
  throw Error(ErrorKind::weights, fmt::format("tensor {} is not in the file", in_quotes(name)), path_.string(),
              near.empty() ? "" : fmt::format("did you mean {}?", in_quotes(near)));
}

}  // namespace tessera::files
