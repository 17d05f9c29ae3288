#include "data/source.h"

#include <fmt/format.h>

#include <charconv>

#include "base/check.h"

namespace tessera::data {
namespace {

constexpr const char* usage =
    "supported now: synthetic or synthetic:HxWxC,CLASSES (optionally ,TRAIN,TEST images), e.g. synthetic:64x64x3,10";

[[noreturn]] void refuse(std::string_view text, std::string problem) {
  throw Error(ErrorKind::usage, std::move(problem), fmt::format("data source '{}'", text.substr(0, 200)), usage);
}

std::vector<std::string_view> split_at(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  for (std::size_t at; (at = text.find(separator)) != text.npos; text.remove_prefix(at + 1)) out.push_back(text.substr(0, at));
  out.push_back(text);
  return out;
}

template <class T>
T number(std::string_view digits, std::string_view text) {
  T value{};
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || code != std::errc() || end != digits.data() + digits.size())
    refuse(text, fmt::format("expected a number, found '{}'", digits));
  return value;
}

}  // namespace

SourceSpec parse_source(std::string_view text) {
  SourceSpec spec;
  spec.text = text;
  const auto colon = text.find(':');
  spec.kind = text.substr(0, colon);
  if (spec.kind == "cifar10" || spec.kind == "cifar100" || spec.kind == "folder")
    refuse(text, fmt::format("'{}' is not read by this version", spec.kind));
  if (spec.kind != "synthetic") {
    const std::string near = nearest(spec.kind, {"synthetic"});
    refuse(text, "unknown data source" + (near.empty() ? "" : ", did you mean '" + near + "'?"));
  }
  if (colon == text.npos) return spec;

  const auto fields = split_at(text.substr(colon + 1), ',');
  if (fields.size() > 4) refuse(text, fmt::format("expected at most 4 fields after the colon, found {}", fields.size()));
  const auto sides = split_at(fields[0], 'x');
  if (sides.size() != 3) refuse(text, fmt::format("expected a size HxWxC, found '{}'", fields[0]));
  SyntheticSpec& synthetic = spec.synthetic;
  synthetic.h = number<int>(sides[0], text);
  synthetic.w = number<int>(sides[1], text);
  synthetic.c = number<int>(sides[2], text);
  spec.sized = true;
  if (fields.size() > 1) synthetic.classes = number<int>(fields[1], text), spec.classed = true;
  if (fields.size() > 2) synthetic.train = number<std::int64_t>(fields[2], text);
  if (fields.size() > 3) synthetic.test = number<std::int64_t>(fields[3], text);
  if (const auto wrong = problems(synthetic); !wrong.empty()) refuse(text, join(wrong, "; "));
  return spec;
}

std::unique_ptr<Dataset> open_dataset(const SourceSpec& spec, Split split, std::uint64_t seed) {
  if (spec.kind != "synthetic") refuse(spec.text, "unknown data source");
  return synthetic(spec.synthetic, split, seed);
}

}  // namespace tessera::data
