// How a model is cut into the stages of a pipeline: its blocks, what each of them costs, and the
// cut that balances the stages. Convention: a block ends with a mark "residual"; the embedding
// (stem) counts with the first, the head with the last (models::block_count). A cut is the number
// of blocks of each stage, in order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "config/config.h"
#include "ir/program.h"
#include "models/model.h"

namespace tessera::run {

struct BlockCost {
  std::string name;         // the scope of its equations: "blocks.0", "stages.1.merge", "layer2.0"
  std::int64_t params = 0;  // elements; running statistics do not count
  double flops = 0;         // forward, per image
  double ms = 0;            // forward and backward, where it was measured
};

// The forward part of a training step for one image, and nothing else.
ir::Program forward_of_one_image(const models::ModelConfig& model);

// The block of each equation of a model's forward program: its stage if every block were one
// (transforms::cut).
std::vector<std::size_t> equation_blocks(const ir::Program& program);

std::vector<BlockCost> model_blocks(const models::ModelConfig& model);

// The cut of `costs` into contiguous parts, each with a block or more, whose largest part is the
// least; among these the most even one (sum of squares), and among equals the one whose first parts
// have the fewest blocks: early stages keep the most micro-batches.
std::vector<std::int64_t> balance(const std::vector<double>& costs, int parts);

// Blocks of each stage (config::pipeline_stages of them), as parallel.stages says: a list by hand,
// or balanced by params or flops. "time" needs the measured milliseconds of each block, or
// settle_stages() before.
std::vector<std::int64_t> blocks_per_stage(const config::Config& config);
std::vector<std::int64_t> blocks_per_stage(const config::Config& config,
                                           const std::vector<double>& ms);

// Milliseconds of each block, forward and backward, for a micro-batch of the configuration: the
// whole model on this rank alone, the median of some steps. The micro-batch is halved until it fits
// into memory.
std::vector<double> measure_blocks(const config::Config& config);

// Once before a session is made, on all ranks: where parallel.stages = "time" and there is a
// pipeline, the first rank measures and every rank's parallel.stages gets the list beside the word.
void settle_stages(config::Config& config, comm::Comm* world);

}  // namespace tessera::run
