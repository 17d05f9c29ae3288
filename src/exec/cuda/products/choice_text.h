// Products, convolutions and the algorithms that libraries have for them as text, for a table of
// choices (exec/choices.h). Convention: two things have the same key only where everything that an
// algorithm depends on is the same, alignment and workspace included. Nothing here needs a card.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exec/cuda/products/blas.h"
#include "exec/cuda/products/dnn.h"

namespace tessera::exec::cuda {

std::string key_of(const Product& product);
std::string key_of(const DnnConv& conv);

// cuBLASLt's algorithms are plain bytes, which hold for one version of the library.
std::string to_hex(std::span<const std::byte> bytes);
// Nothing where the text is not that many bytes.
std::optional<std::vector<std::byte>> from_hex(std::string_view text, std::size_t bytes);

// cuDNN's are an engine by its number and the settings of its knobs, by their types:
// "engine 12 knobs 2=1 17=0".
struct DnnEngine {
  std::int64_t index = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> knobs;

  bool operator==(const DnnEngine&) const = default;
};
inline constexpr std::size_t most_knobs = 64;
std::string to_text(const DnnEngine& engine);
std::optional<DnnEngine> engine_from(std::string_view text);  // nothing where it is no such text

}  // namespace tessera::exec::cuda
