// The data of a run: the configured source, opened for the model, and how its batches are made.
#pragma once

#include <memory>

#include "config/config.h"
#include "data/loader.h"

namespace tessera::run {

// Throws Error(usage) when the data does not suit the model (classes, channels), Error(data) when
// it is not there or damaged.
std::unique_ptr<data::Dataset> open_data(const config::Config& config, data::Split split);

// One sentence where a link in a folder of images leads out of it; "" where none does. The second
// form adds it to others.
std::string links_note(const data::Dataset& dataset);
void note_links(const data::Dataset& dataset, std::vector<std::string>& notes);

// Training: shuffled, sampled and augmented as configured, without end. Test: every sample once, in
// order, not augmented.
data::LoaderOptions loader_options(const config::Config& config, const data::Dataset& dataset,
                                   data::Split split);

// Training samples of an epoch that data.fraction leaves.
std::int64_t used_samples(const config::Config& config, const data::Dataset& train);

}  // namespace tessera::run
