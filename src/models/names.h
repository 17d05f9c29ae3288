// Names of a family's parameters in other people's files: a row of functions per family, behind
// weights.h. Convention: names come without the wrappers' prefixes; what a function does not know
// it does not guess.
#pragma once

#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "models/families.h"
#include "models/weights.h"

namespace tessera::models {

struct Names {
  std::string_view family;
  std::optional<std::string> (*canonical)(
      std::string_view name);  // torchvision's, old torchvision's and timm's names
  std::optional<std::string> (*timm)(std::string_view canonical);
  std::optional<Layer> (*layer)(std::string_view canonical);
  bool (*ignored)(std::string_view name) = nullptr;  // what a file may hold beside the parameters
  void (*settle)(NameMap& names) = nullptr;          // what only all names of a file together tell
  std::string_view head_weight, head_bias;
  std::string_view final_norm = {};  // the prefix of what follows the last layer
  std::optional<std::int64_t> (*entrance)(std::string_view canonical) =
      nullptr;  // the stage that a parameter between stages leads into
};
#define X(name) extern const Names name##_names;
TESSERA_FAMILIES(X)
#undef X

// Hugging Face's names (names_hf.cpp), of every family.
std::optional<NamePart> from_hf(std::string_view family, std::string_view name);
bool ignored_in_hf(std::string_view family, std::string_view name);

// "12.norm1.weight" -> 12, "norm1.weight". At most 6 digits and no leading zero, so that a number
// has one spelling and none overflows.
struct Numbered {
  std::int64_t number = 0;
  std::string_view rest;
};
inline std::optional<Numbered> split_number(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const std::size_t digits = name.find('.');
  if (digits == name.npos || digits == 0 || digits > 6 || (name[0] == '0' && digits > 1))
    return std::nullopt;
  Numbered out;
  const auto [end, error] = std::from_chars(name.data(), name.data() + digits, out.number);
  if (error != std::errc() || end != name.data() + digits || out.number < 0) return std::nullopt;
  out.rest = name.substr(digits + 1);
  return out;
}

}  // namespace tessera::models
