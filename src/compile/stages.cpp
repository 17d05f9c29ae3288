#include "compile/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/check.h"
#include "config/pipeline.h"
#include "ir/builder.h"
#include "transforms/transforms.h"

namespace tessera::run {
namespace {

using namespace ir;

bool ends_block(const Eqn& eqn) {
  return eqn.op == Op::mark && std::get<Mark>(eqn.attrs).label == "residual";
}

// "blocks.0.residual_2" -> "blocks.0": where the mark stands inside a block says nothing.
std::string block_name(const std::string& scope) {
  const auto dot = scope.rfind('.');
  return dot != scope.npos && scope.compare(dot + 1, 8, "residual") == 0 ? scope.substr(0, dot)
                                                                         : scope;
}

// The cost of a part of a cut is the difference of two prefix sums, here and everywhere, so that
// comparisons are exact.
std::vector<double> prefix_sums(const std::vector<double>& costs) {
  std::vector<double> sums = {0.0};
  for (const double cost : costs) sums.push_back(sums.back() + cost);
  return sums;
}

// Whether parts of at most `most` each are enough: each takes as much as it may.
bool enough(const std::vector<double>& sums, int parts, double most) {
  const std::size_t n = sums.size() - 1;
  std::size_t begin = 0;
  for (int part = 0; part < parts && begin < n; ++part) {
    std::size_t end = begin;
    while (end < n && sums[end + 1] - sums[begin] <= most) ++end;
    if (end == begin) return false;
    begin = end;
  }
  return begin == n;
}

// The least largest part, to the last bit.
double least_largest(const std::vector<double>& sums, int parts) {
  double low = sums.back() / parts, high = sums.back();
  for (std::size_t i = 0; i + 1 < sums.size(); ++i) low = std::max(low, sums[i + 1] - sums[i]);
  low = std::min(low, high);
  if (enough(sums, parts, low)) return low;
  for (;;) {
    const double middle = std::midpoint(low, high);
    if (middle <= low || middle >= high) return high;
    (enough(sums, parts, middle) ? high : low) = middle;
  }
}

}  // namespace

Program forward_of_one_image(const models::ModelConfig& m) {
  Builder b;
  const Var images =
      b.input(Input::batch, "images", {DType::f32, {1, m.image_h, m.image_w, m.channels}, {}});
  std::map<std::string, Var> params;
  for (const models::Param& p : models::parameters(m))
    params[p.name] =
        b.input(p.buffer ? Input::state : Input::param, p.name, {DType::f32, p.shape, {}}, p.dims);
  const models::Mode mode{.random = true, .batch_statistics = true};
  b.output("logits", models::forward(b, m, images, mode,
                                     [&](const std::string& name) { return params.at(name); }));
  return b.take();
}

std::vector<std::size_t> equation_blocks(const Program& program) {
  const auto marks = std::count_if(program.eqns.begin(), program.eqns.end(), ends_block);
  CHECK(marks > 1, "a program has a residual mark before its first block and one after each");
  std::vector<std::size_t> out;
  for (const Eqn& eqn :
       transforms::cut(program, std::vector<std::int64_t>(static_cast<std::size_t>(marks - 1), 1))
           .eqns)
    out.push_back(static_cast<std::size_t>(eqn.stage));
  return out;
}

std::vector<BlockCost> model_blocks(const models::ModelConfig& model) {
  const Program program = forward_of_one_image(model);
  const std::vector<std::size_t> at = equation_blocks(program);
  std::vector<BlockCost> blocks(static_cast<std::size_t>(models::block_count(model)));
  std::vector<std::size_t> first_reader(program.values.size(), blocks.size() - 1);
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& eqn = program.eqns[i];
    CHECK(at[i] < blocks.size(), "models::block_count has fewer blocks than the program");
    blocks[at[i]].flops +=
        cost(eqn.op, eqn.attrs, program.types(eqn.in), program.types(eqn.out)).flops;
    if (ends_block(eqn))
      blocks[at[i]].name =
          block_name(eqn.scope);  // the first block has two; its own is the later one
    for (const Var v : eqn.in)
      if (v != none)
        first_reader[static_cast<std::size_t>(v)] =
            std::min(first_reader[static_cast<std::size_t>(v)], at[i]);
  }
  for (const Input& in : program.inputs)
    if (in.kind == Input::param)
      blocks[first_reader[static_cast<std::size_t>(in.var)]].params +=
          elements(program.type(in.var).shape);
  CHECK(!blocks.back().name.empty(), "models::block_count has more blocks than the program");
  return blocks;
}

std::vector<std::int64_t> balance(const std::vector<double>& costs, int parts) {
  const std::size_t n = costs.size(), p = static_cast<std::size_t>(parts);
  CHECK(parts >= 1 && p <= n, "every part has a block");
  CHECK(
      std::all_of(costs.begin(), costs.end(), [](double c) { return std::isfinite(c) && c >= 0; }),
      "costs are finite and not negative");
  const std::vector<double> sums = prefix_sums(costs);
  const double most = least_largest(sums, parts);
  // least[k][i]: the sum of squares of the best k parts of the blocks from i on, none larger than
  // `most`; first[k][i]: the end of the first.
  constexpr double never = std::numeric_limits<double>::infinity(), rounding = 1e-12;
  std::vector<std::vector<double>> least(p + 1, std::vector<double>(n + 1, never));
  std::vector<std::vector<std::size_t>> first(p + 1, std::vector<std::size_t>(n + 1, n));
  least[0][n] = 0;
  for (std::size_t k = 1; k <= p; ++k)
    for (std::size_t i = p - k; i + k <= n; ++i)
      for (std::size_t end = i + 1; end + (k - 1) <= n && sums[end] - sums[i] <= most; ++end) {
        const double part = sums[end] - sums[i], all = part * part + least[k - 1][end];
        if (all < least[k][i] * (1 - rounding)) {
          least[k][i] = all;
          first[k][i] = end;
        }
      }
  std::vector<std::int64_t> out;
  for (std::size_t k = p, i = 0; k > 0; i = first[k--][i])
    out.push_back(static_cast<std::int64_t>(first[k][i] - i));
  return out;
}

std::vector<std::int64_t> blocks_per_stage(const config::Config& config) {
  return blocks_per_stage(config, {});
}

std::vector<std::int64_t> blocks_per_stage(const config::Config& config,
                                           const std::vector<double>& ms) {
  const config::ListOrWord& stages = config.parallel.stages;
  const auto parts = static_cast<int>(config::pipeline_stages(config.parallel));
  if (const std::vector<config::Finding> problems = config::stage_problems(config);
      !problems.empty()) {
    Error error(ErrorKind::usage, problems[0].message, "", problems[0].advice);
    for (std::size_t i = 1; i < problems.size(); ++i) error.and_also(problems[i].message);
    throw error;
  }
  if (ms.empty() && !stages.list.empty()) {
    std::vector<std::int64_t> out;
    for (const double blocks : stages.list) out.push_back(std::llround(blocks));
    return out;
  }
  if (parts == 1) return {models::block_count(config.model)};
  std::vector<double> costs = ms;
  if (ms.empty() && stages.word == "time")
    throw Error(ErrorKind::usage,
                "parallel.stages = \"time\" needs measured blocks, and nothing was measured", "",
                "choose flops, params or a list of blocks per stage");
  if (ms.empty())
    for (const BlockCost& block : model_blocks(config.model))
      costs.push_back(stages.word == "params" ? static_cast<double>(block.params) : block.flops);
  CHECK(static_cast<std::int64_t>(costs.size()) == models::block_count(config.model),
        "a cost for each block");
  return balance(costs, parts);
}

}  // namespace tessera::run
