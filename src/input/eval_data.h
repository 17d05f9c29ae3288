// The test images that weights are scored on: those that their own run kept for testing, and labels
// that mean what the weights mean.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/problem.h"
#include "data/dataset.h"

namespace tessera::run {

// Where `weights` lie in a run folder whose data is config.data.source: run.seed, data.val_fraction
// and data.test_size become the run's, unless they were given. `notes` gets a line when the images
// are others than the run's own, or nobody knows.
void follow_run(const std::filesystem::path& weights, const config::Given& given,
                config::Config& config, std::vector<std::string>& notes);

// The data set with its labels in the order of `classes`, by their names; unchanged where the
// weights have no names, only numbers. Error(data) when the names are others. `where`: the data's,
// for messages.
std::unique_ptr<data::Dataset> labelled_by(const std::vector<std::string>& classes,
                                           std::unique_ptr<data::Dataset> dataset,
                                           const std::string& where);

}  // namespace tessera::run
