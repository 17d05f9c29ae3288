// The tables of `bench layers`: the parts of a layer, and with --compare-threading those parts by
// the ways in which threads share work out.
#pragma once

#include <string>

#include "measure/layers.h"
#include "verbs/verbs.h"

namespace tessera::run {

// "vit_b_16 224x224, batch 8, f32, 2 threads, fused kernels: 12 layers, median of 5 runs"
std::string layers_heading(const LayerTimes& times, const config::Config& config,
                           std::int64_t batch);
int bench_threading(const config::Config& config, const BenchOptions& options);

}  // namespace tessera::run
