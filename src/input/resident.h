// Training pictures that stay on the device: whether they do, by data.resident and the data.
#pragma once

#include <string>

#include "config/config.h"
#include "data/dataset.h"

namespace tessera::run {

// The most bytes of pictures that data.resident = auto keeps on a card: it does not depend on the
// card, so that `explain` says what a run will do wherever it is asked.
inline constexpr std::int64_t most_resident_bytes = std::int64_t{1} << 30;

// Why the pictures cannot stay on the device: something of them is left to the loader; "": they
// can.
std::string why_not_resident(const config::Config& config, const data::Dataset& train);

// Sets config.data.held, the number of pictures that the device holds. Error(usage) when
// data.resident = yes asks for what cannot be.
void settle_resident(config::Config& config, const data::Dataset& train);

}  // namespace tessera::run
