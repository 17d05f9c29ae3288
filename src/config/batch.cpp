#include "config/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/index.h"
#include "config/value.h"

namespace tessera::config {
namespace {

const std::vector<std::string> all_keys = {"batch.global", "batch.micro", "batch.accumulate"};

BatchSolution refuse(const Batch& batch, std::vector<std::string> keys, std::string message,
                     std::string advice) {
  return {batch, Finding{std::move(keys), std::move(message), std::move(advice)}, ""};
}

// Bounds that do not depend on whether the parts are even.
std::optional<Finding> out_of_bounds(const Batch& b, std::int64_t ranks) {
  if (b.global > most_samples)
    return Finding{
        {"batch.micro", "batch.accumulate", "batch.global"},
        fmt::format("batch.micro x batch.accumulate x dp = {} x {} x {} = {} is out of range",
                    b.micro, b.accumulate, ranks, b.global),
        fmt::format("at most {} samples make an update", most_samples)};
  if (b.accumulate > b.global)
    return Finding{
        {"batch.accumulate", "batch.micro", "batch.global"},
        fmt::format("batch.accumulate = {} is more than batch.global = {}", b.accumulate, b.global),
        "every micro-batch needs a sample"};
  if (b.accumulate > most_accumulate)
    return Finding{{"batch.micro", "batch.global"},
                   fmt::format("batch.micro = {} cuts batch.global = {} into {} micro-batches; at "
                               "most {} make an update",
                               b.micro, b.global, b.accumulate, most_accumulate),
                   fmt::format("choose a micro-batch of {} or more",
                               ceil_div(b.global, most_accumulate * ranks))};
  return {};
}

Finding contradiction(const Batch& b, std::int64_t ranks) {
  const std::int64_t product = b.micro * b.accumulate * ranks;
  std::vector<std::string> options = {
      fmt::format("micro = {}", largest_micro(b.global, b.accumulate, ranks))};
  const std::int64_t parts = ceil_div(b.global, b.micro * ranks);
  if (parts <= most_accumulate && largest_micro(b.global, parts, ranks) == b.micro)
    options.push_back(fmt::format("accumulate = {}", parts));
  if (product <= most_samples) options.push_back(fmt::format("global = {}", product));
  const std::string left =
      ranks == 1 ? fmt::format("batch.micro x batch.accumulate = {} x {}", b.micro, b.accumulate)
                 : fmt::format("batch.micro x batch.accumulate x dp = {} x {} x {}", b.micro,
                               b.accumulate, ranks);
  return {all_keys, fmt::format("{} = {} but batch.global = {}", left, product, b.global),
          "choose " + alternatives(options) + ", or leave one of the three out"};
}

// How many ranks the batch as given would suit: all three numbers fix it, otherwise those next to
// `ranks`.
std::vector<std::string> fitting_ranks(const BatchGiven& given, const Batch& b,
                                       std::int64_t ranks) {
  std::vector<std::string> out;
  const std::int64_t fixed = b.accumulate * (given.micro ? b.micro : 1);
  if (!given.global || fixed <= 0 || b.global % fixed != 0) return out;
  const std::int64_t most = b.global / fixed;
  if (given.micro && given.accumulate) return {std::to_string(most)};
  for (std::int64_t r = std::min(ranks - 1, most); r > 0 && out.empty(); --r)
    if (most % r == 0) out.push_back(std::to_string(r));
  for (std::int64_t r = ranks + 1; r <= std::min(most, 2 * ranks); ++r)
    if (most % r == 0) {
      out.push_back(std::to_string(r));
      break;
    }
  return out;
}

}  // namespace

std::int64_t largest_micro(std::int64_t global, std::int64_t accumulate, std::int64_t ranks) {
  return ceil_div(ceil_div(global, accumulate), ranks);
}

BatchSolution solve_batch(const BatchGiven& given, std::int64_t ranks) {
  Batch b{given.global.value_or(Batch{}.global), given.micro.value_or(1),
          given.accumulate.value_or(1)};
  // Micro-batches alone cut the default batch. A size of a part alone could mean either another
  // batch or another number of parts.
  if (!given.global && given.micro && !given.accumulate)
    return refuse(
        b, {"batch.micro"},
        fmt::format("batch.micro = {} alone does not say how large an update is", b.micro),
        "give batch.global or batch.accumulate too");
  if (!given.global && given.micro)
    b.global = b.micro * b.accumulate * ranks;  // at most 2^24 x 2^8 x 2^16
  if (!given.accumulate && given.micro) b.accumulate = ceil_div(b.global, b.micro * ranks);
  if (std::optional<Finding> problem = out_of_bounds(b, ranks)) return {b, std::move(problem), ""};
  const std::int64_t largest = largest_micro(b.global, b.accumulate, ranks);
  if (!given.micro || b.micro == largest) return {{b.global, largest, b.accumulate}, {}, ""};
  if (given.accumulate) return {b, contradiction(b, ranks), ""};
  return {{b.global, largest, b.accumulate},
          {},
          fmt::format("batch.micro = {} becomes {}: batch.global = {} in {} micro-batches over {} "
                      "rank{} makes parts of at most that many",
                      b.micro, largest, b.global, b.accumulate, ranks, ranks == 1 ? "" : "s")};
}

BatchSolution solve_deepspeed_batch(const BatchGiven& given, std::int64_t ranks) {
  Batch b{given.global.value_or(0), given.micro.value_or(0), given.accumulate.value_or(1)};
  if (!given.global && !given.micro)
    return refuse(b, all_keys,
                  "neither train_batch_size nor train_micro_batch_size_per_gpu is given",
                  "DeepSpeed needs one of the two; batch.global or --global-batch will do");
  if (given.global && given.micro && !given.accumulate) b.accumulate = b.global / b.micro / ranks;
  if (given.global && !given.micro) b.micro = b.global / ranks / b.accumulate;
  if (!given.global) b.global = b.micro * b.accumulate * ranks;
  const std::int64_t product = b.micro * b.accumulate * ranks;
  if (b.global != product || product == 0) {
    std::vector<std::string> options;
    for (const Batch& near : divisible_batches(b, ranks))
      options.push_back(
          fmt::format("{} = {} x {} x {}", near.global, near.micro, near.accumulate, ranks));
    std::string advice = "choose " + alternatives(options);
    const std::vector<std::string> worlds = fitting_ranks(given, b, ranks);
    if (!worlds.empty()) advice += fmt::format("; or dp = {} for this batch", alternatives(worlds));
    return refuse(b, all_keys,
                  fmt::format("train_batch_size = {} is not train_micro_batch_size_per_gpu x "
                              "gradient_accumulation_steps x dp: {} != {} x "
                              "{} x {} = {}",
                              b.global, b.global, b.micro, b.accumulate, ranks, product),
                  advice);
  }
  return {b, out_of_bounds(b, ranks), ""};
}

double peak_rate(const Config& config) {
  const double times =
      static_cast<double>(config.batch.global) / static_cast<double>(config.lr.scale_from);
  return config.optim.lr * (config.lr.scale == "linear" ? times
                            : config.lr.scale == "sqrt" ? std::sqrt(times)
                                                        : 1.0);
}

std::string peak_text(const Config& config) {
  if (config.lr.scale == "none") return "";
  const std::string times = fmt::format("{} / {}", config.batch.global, config.lr.scale_from);
  return fmt::format("the peak learning rate is {:.6g}: optim.lr {} x {}", peak_rate(config),
                     number_text(config.optim.lr),
                     config.lr.scale == "sqrt" ? "sqrt(" + times + ")" : times);
}

std::vector<Batch> divisible_batches(const Batch& wish, std::int64_t ranks) {
  std::vector<Batch> out;
  const auto add = [&](std::int64_t micro, std::int64_t accumulate) {
    const Batch b{micro * accumulate * ranks, micro, accumulate};
    const bool sound =
        micro > 0 && accumulate > 0 && accumulate <= most_accumulate && b.global <= most_samples;
    if (sound && out.size() < 4 && std::find(out.begin(), out.end(), b) == out.end())
      out.push_back(b);
  };
  const std::int64_t accumulate = std::clamp<std::int64_t>(wish.accumulate, 1, most_accumulate);
  if (wish.micro > 0 && wish.global % (wish.micro * ranks) == 0)
    add(wish.micro, wish.global / (wish.micro * ranks));
  add(wish.global / (accumulate * ranks), accumulate);
  if (wish.global % (accumulate * ranks) != 0)
    add(wish.global / (accumulate * ranks) + 1, accumulate);
  add(wish.micro, accumulate);
  if (out.empty()) add(1, 1);
  return out;
}

}  // namespace tessera::config
