// Data sources by name, as in `--data SPEC` and `data.source`.
//
//   source    = "synthetic" [ ":" size [ "," classes [ "," train [ "," test ] ] ] ]
//   size      = height "x" width "x" channels
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/dataset.h"
#include "data/synthetic.h"

namespace tessera::data {

struct SourceSpec {
  std::string text;  // as given
  std::string kind = "synthetic";
  SyntheticSpec synthetic;
  bool sized = false, classed = false;  // false: not given, so the caller may take the model's image size or number of classes
  bool operator==(const SourceSpec&) const = default;
};

// Throws Error(usage) saying what is understood.
SourceSpec parse_source(std::string_view text);

std::unique_ptr<Dataset> open_dataset(const SourceSpec& spec, Split split, std::uint64_t seed);

}  // namespace tessera::data
