#include "ranks/ranks.h"

#include <optional>
#include <vector>

namespace tessera::run {
namespace {

template <class T>
comm::Bytes bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// The texts of an error as one string, each closed by a zero byte.
std::string packed(const Error& e) {
  std::string out;
  for (const std::string* text : {&e.message, &e.where, &e.hint}) out += *text + '\0';
  for (const std::string& text : e.also) out += text + '\0';
  return out;
}
std::vector<std::string> unpacked(const std::string& all) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = all.find('\0', at);
    out.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

}  // namespace

bool Ranks::any(bool mine) const {
  if (!world_) return mine;
  std::int32_t flag = mine;
  world_->all_reduce(bytes_of(flag), ir::DType::i32, comm::Reduction::max);
  return flag != 0;
}

double Ranks::total(double mine) const {
  if (world_) world_->all_reduce(bytes_of(mine), ir::DType::f64);
  return mine;
}

double Ranks::most(double mine) const {
  if (world_) world_->all_reduce(bytes_of(mine), ir::DType::f64, comm::Reduction::max);
  return mine;
}

std::vector<double> Ranks::gather(std::span<const double> mine) const {
  if (!world_) return {mine.begin(), mine.end()};
  std::vector<double> all(mine.size() * static_cast<std::size_t>(size()));
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()),
                                         static_cast<std::int64_t>(mine.size_bytes()));
  world_->all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)), counts);
  return all;
}

std::vector<std::string> Ranks::gather_text(const std::string& mine) const {
  if (!world_) return {mine};
  const auto length = static_cast<double>(mine.size());
  std::vector<std::int64_t> counts;
  std::int64_t sum = 0;
  for (const double n : gather({&length, 1})) {
    counts.push_back(static_cast<std::int64_t>(n));
    sum += counts.back();
  }
  std::string all(static_cast<std::size_t>(sum), '\0');
  world_->all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                     counts);
  std::vector<std::string> out;
  std::size_t at = 0;
  for (const std::int64_t n : counts) {
    out.push_back(all.substr(at, static_cast<std::size_t>(n)));
    at += static_cast<std::size_t>(n);
  }
  return out;
}

void Ranks::barrier() const {
  if (world_) world_->barrier();
}

void Ranks::together(const std::function<void()>& body) const {
  if (!world_) return body();
  std::optional<Error> mine;
  try {
    body();
  } catch (const Error& e) {
    mine = e;
  }
  std::int32_t speaker = mine ? rank() : size();
  world_->all_reduce(bytes_of(speaker), ir::DType::i32, comm::Reduction::min);
  if (speaker == size()) return;
  std::int64_t head[2] = {0, 0};  // kind, length
  std::string text;
  if (speaker == rank()) {
    text = packed(*mine);
    head[0] = static_cast<std::int64_t>(mine->kind);
    head[1] = static_cast<std::int64_t>(text.size());
  }
  world_->broadcast(std::as_writable_bytes(std::span(head)), speaker);
  text.resize(static_cast<std::size_t>(head[1]));
  world_->broadcast(std::as_writable_bytes(std::span(text)), speaker);
  const std::vector<std::string> parts = unpacked(text);
  AgreedError error(static_cast<ErrorKind>(head[0]), parts.at(0), parts.at(1), parts.at(2));
  if (speaker > 0) error.in("rank " + std::to_string(speaker));
  for (std::size_t i = 3; i < parts.size(); ++i) error.and_also(parts[i]);
  throw error;
}

void Ranks::together_telling_all(const std::function<void()>& body) const {
  if (!world_) return body();
  std::string mine;
  double kind = 0;
  try {
    body();
  } catch (const Error& e) {
    mine = packed(e);
    kind = static_cast<double>(e.kind);
  }
  if (!any(!mine.empty())) return;
  const std::vector<std::string> all = gather_text(mine);
  const std::vector<double> kinds = gather({&kind, 1});
  std::size_t first = 0;
  while (all[first].empty()) ++first;
  const std::vector<std::string> parts = unpacked(all[first]);
  AgreedError error(static_cast<ErrorKind>(static_cast<int>(kinds[first])), parts.at(0),
                    parts.at(1), parts.at(2));
  if (first > 0) error.in("rank " + std::to_string(first));
  for (std::size_t i = 3; i < parts.size(); ++i) error.and_also(parts[i]);
  for (std::size_t r = first + 1; r < all.size(); ++r)
    if (!all[r].empty())
      error.and_also("rank " + std::to_string(r) + ": " +
                     (all[r] == all[first] ? "the same" : unpacked(all[r]).at(0)));
  throw error;
}

}  // namespace tessera::run
