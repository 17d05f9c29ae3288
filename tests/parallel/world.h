// A training of a tiny model on any number of ranks in this process, and its trace: what every
// layout must reproduce.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "config/config.h"
#include "session/session.h"

namespace tessera::test {

struct Trace {
  std::vector<double> loss, correct, grad_norm;
  std::map<std::string, std::vector<double>>
      weights;                            // after the last step; "ema." in front for the average
  comm::Traffic per_step;                 // of this rank in the last step
  std::vector<std::int64_t> state_bytes;  // per rank: weights, gradients, optimizer as planned
};

int usual_steps();  // 8; TESSERA_STEPS, which is 20 in ./check --all

struct Training {
  config::Config config;
  int steps = usual_steps();
  std::int64_t batch = 0;               // 0: config.batch.global; a last ragged batch is `ragged`
  std::int64_t ragged = 0;              // samples of the last step; 0: as all
  bool soft = false, weighted = false;  // mixed targets, weighted samples
  bool pixels = false;                  // images as data sets have them, not numbers
  std::function<void(run::Session&, const Trace& mine)> at_end = {};  // on every rank
  std::function<void(const models::Param&, std::vector<double>&)> start =
      {};  // may change the weights that it starts from
};

// On the device that TESSERA_TEST_DEVICE names (cpu), with messages as TESSERA_TEST_COMM says
// (auto).
config::Config tiny(const std::string& family, const std::string& dtype = "f64");
// "dp2 tp2 zero3 megatron", "dp2 compress=int8", "pp2 interleaved2 acc4": writes parallel.* of the
// configuration.
config::Config with_layout(config::Config config, const std::string& layout);
int ranks_of(const config::Config& config);

Trace train(const Training& training);
// The part of one rank in it, where ranks are there already; null: there is one.
Trace train_as(const Training& training, comm::Comm* world);
// The plan of a step that is fed with numbers, as train_as() does unless told otherwise.
const run::Compiled& compiled_step(run::Session& session, std::int64_t samples);
// The same training on one rank, without anything that a layout brings along. Many layouts have it
// in common: it runs once.
const Trace& on_one_rank(const Training& training);

// The samples of a step: the same for every layout.
struct Samples {
  std::vector<float> images;
  std::vector<std::int32_t> labels;
};
Samples samples_of(const models::ModelConfig& model, int step, std::int64_t count);

// The largest relative difference of two traces, step by step; of the weights, norm over norm.
double difference(const std::vector<double>& a, const std::vector<double>& b);
double weight_difference(const Trace& a, const Trace& b);

}  // namespace tessera::test
