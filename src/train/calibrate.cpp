#include "train/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "data/loader.h"
#include "input/dataset.h"
#include "models/weights.h"
#include "train/batches.h"

namespace tessera::run {

void Magnitudes::add(std::span<const float> values) {
  float most = 0;
  for (const float v : values) most = std::max(most, std::abs(v));
  largest_ = std::max(largest_, static_cast<double>(most));
  while (range_ <= largest_) {
    for (std::size_t i = 0; i < bins / 2; ++i) count_[i] = count_[2 * i] + count_[2 * i + 1];
    std::fill(count_.begin() + bins / 2, count_.end(), 0);
    range_ *= 2;
  }
  const auto per_unit = static_cast<float>(static_cast<double>(bins) / range_);
  for (const float v : values) {
    const auto bin = static_cast<std::size_t>(std::abs(v) * per_unit);
    ++count_[std::min(bin, bins - 1)];
  }
}

std::int64_t Magnitudes::count() const {
  std::int64_t sum = 0;
  for (const std::int64_t n : count_) sum += n;
  return sum;
}

double Magnitudes::best_bound(double steps) const {
  const double width = range_ / static_cast<double>(bins);
  // Magnitudes cut off at the lower end of a bin, those of the bins above: their number, their sum
  // and the sum of their squares.
  double n = 0, sum = 0, squares = 0, inside = static_cast<double>(count()), best = largest_,
         least = INFINITY;
  for (std::size_t i = bins; i-- > 0;) {
    const double bound = static_cast<double>(i + 1) * width;
    if (bound - width <= largest_) {
      const double error = inside * bound * bound / (12 * steps * steps) + squares -
                           2 * bound * sum + n * bound * bound;
      if (error < least) {
        least = error;
        best = std::min(bound, largest_);
      }
    }
    const auto here = static_cast<double>(count_[i]);
    const double at = (static_cast<double>(i) + 0.5) * width;
    n += here;
    inside -= here;
    sum += here * at;
    squares += here * at * at;
  }
  return best;
}

namespace {

// Steps of a plan that multiply by a parameter which is quantised, with its name.
std::map<std::size_t, std::string> products_of(const plan::Plan& plan,
                                               const models::ModelConfig& model,
                                               std::string_view as) {
  std::map<std::string, bool> wanted;
  for (const models::Param& p : models::parameters(model))
    if (models::is_quantisable(model, p, as)) wanted[p.name] = true;
  std::map<std::size_t, std::string> out;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const plan::Step& step = plan.steps[i];
    if ((step.op != ir::Op::contract && step.op != ir::Op::conv) || step.eqn < 0) continue;
    const ir::Eqn& e = plan.program.eqns[static_cast<std::size_t>(step.eqn)];
    const std::string& name = plan.program.name_of(e.in[1]);
    if (wanted.contains(name)) out[i] = name;
  }
  CHECK(out.size() == wanted.size(), "every layer that is quantised is one product of the plan");
  return out;
}

}  // namespace

std::map<std::string, double> calibrate(Session& session, const config::Config& config,
                                        const data::Dataset& images, std::string_view as,
                                        std::int64_t samples, std::int64_t batch) {
  CHECK(session.spec().real == ir::DType::f32 && !session.spec().low, "calibration reads f32");
  samples = std::min(samples, images.size());
  data::LoaderOptions options = loader_options(config, images, data::Split::test);
  options.shuffle = true;
  options.seed = static_cast<std::uint64_t>(config.run.seed);
  options.batch = std::min(batch, samples);
  data::Loader loader(images, options);
  std::map<std::string, Magnitudes> seen;
  data::Batch b;
  for (std::int64_t done = 0; done < samples && loader.next(b); done += b.count) {
    const plan::Plan& plan = session
                                 .compiled({.goal = Goal::predict,
                                            .samples = b.count,
                                            .weights = Weights::live,
                                            .form = images_of(b).form()})
                                 .plan;
    const std::map<std::size_t, std::string> products = products_of(plan, config.model, as);
    session.observe([&](std::size_t index, const auto& bytes) {
      const auto found = products.find(index);
      if (found == products.end()) return;
      const std::span<const std::byte> x = bytes(plan.steps[index].in[0]);
      const std::span numbers(reinterpret_cast<const float*>(x.data()), x.size() / sizeof(float));
      if (!std::all_of(numbers.begin(), numbers.end(), [](float v) { return std::isfinite(v); }))
        throw Error(ErrorKind::nonfinite,
                    fmt::format("what {} is multiplied with is not finite", found->second), "",
                    "the weights are damaged or their training diverged: use others");
      seen[found->second].add(numbers);
    });
    session.predict(images_of(b), b.count);
  }
  session.observe({});
  const double steps = largest_of(as);
  std::map<std::string, double> out;
  for (const auto& [name, magnitudes] : seen) {
    const double bound = as == "int8" ? magnitudes.best_bound(steps) : magnitudes.largest();
    out[name] = bound > 0 ? static_cast<double>(static_cast<float>(bound / steps)) : 1.0;
  }
  return out;
}

}  // namespace tessera::run
