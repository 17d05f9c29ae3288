#include "train/score.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "compile/plans.h"
#include "data/augment.h"
#include "data/loader.h"
#include "input/dataset.h"
#include "report/predictions.h"
#include "train/batches.h"

namespace tessera::run {
namespace {

constexpr std::int64_t some_images = 24;

// As the op `correct` counts: a score that is no number is never the largest, and of equal ones the
// first is.
bool is_hit(const double* scores, std::size_t classes, std::size_t label) {
  std::size_t better = 0;
  for (std::size_t i = 0; i < classes; ++i)
    better += scores[i] > scores[label] || (scores[i] == scores[label] && i < label);
  return !std::isnan(scores[label]) && better == 0;
}

// How many labels have the largest mean probability of two views.
std::int64_t correct_of_mean(const std::vector<double>& a, const std::vector<double>& b,
                             const std::vector<std::int32_t>& labels) {
  const std::size_t classes = a.size() / std::max<std::size_t>(1, labels.size());
  std::int64_t correct = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    std::vector<double> p = softmax({&a[i * classes], &a[i * classes] + classes});
    const std::vector<double> q = softmax({&b[i * classes], &b[i * classes] + classes});
    for (std::size_t k = 0; k < classes; ++k) p[k] += q[k];
    correct += is_hit(p.data(), classes, static_cast<std::size_t>(labels[i]));
  }
  return correct;
}

// Counts what the model says of one image, and keeps it of every `apart`-th.
void note_said(Score& score, std::span<const double> logits, std::size_t label, std::int64_t sample,
               std::int64_t apart) {
  const auto said =
      static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (!score.confusion.empty()) ++score.confusion[label * logits.size() + said];
  if (sample % apart != 0 || static_cast<std::int64_t>(score.some.size()) == some_images) return;
  score.some.push_back({.sample = sample,
                        .label = static_cast<std::int64_t>(label),
                        .said = static_cast<std::int64_t>(said),
                        .probability = softmax({logits.begin(), logits.end()})[said]});
}

}  // namespace

std::vector<double> softmax(std::vector<double> x) {
  const double most = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - most);
  for (double& v : x) v /= sum;
  return x;
}

Score score(Session& session, const config::Config& config, const data::Dataset& dataset,
            std::int64_t batch, int workers, report::Console* console,
            const std::function<bool()>& stop,
            const std::function<void(std::int64_t images)>& seen) {
  const auto start = std::chrono::steady_clock::now();
  auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  data::LoaderOptions options = loader_options(config, dataset, data::Split::test);
  options.batch = std::min(batch, dataset.size());
  options.workers = workers;
  options.wants = session.own_samples_of(Goal::evaluate);
  data::Loader loader(dataset, options);
  const auto classes = static_cast<std::size_t>(session.config().model.classes);
  Score out;
  out.class_count.assign(classes, 0);
  out.class_correct.assign(classes, 0);
  if (classes <= report::kMostConfusionClasses) out.confusion.assign(classes * classes, 0);
  const std::int64_t apart = std::max<std::int64_t>(1, dataset.size() / some_images);
  const bool flips = config.data.tta == "flip";
  std::int64_t correct_tta = 0;
  data::Batch b;
  while (!(stop && stop()) && next_batch(loader, session, config, b)) {
    const Weights weights = session.averages() ? Weights::average : Weights::live;
    const EvalResult r = session.evaluate(images_of(b), b.labels, weights);
    if (flips) {
      if (b.pixels.empty())
        data::mirror_batch(std::span(b.images), b.width, b.channels);
      else
        data::mirror_batch(std::span(b.pixels), b.width, b.channels);
      correct_tta += correct_of_mean(
          r.logits, session.evaluate(images_of(b), b.labels, weights).logits, b.labels);
    }
    out.loss += r.loss_sum;
    out.top1 += r.correct;
    out.top5 += r.correct5;
    out.images += b.count;
    out.finite &=
        std::isfinite(r.loss_sum) &&
        std::all_of(r.logits.begin(), r.logits.end(), [](double v) { return std::isfinite(v); });
    if (console)
      console->bar(static_cast<double>(out.images) / static_cast<double>(dataset.size()),
                   seconds());
    for (std::size_t i = 0; i < b.labels.size(); ++i) {
      const auto label = static_cast<std::size_t>(b.labels[i]);
      ++out.class_count[label];
      out.class_correct[label] += is_hit(&r.logits[i * classes], classes, label);
      note_said(out, {&r.logits[i * classes], classes}, label,
                b.first_position + static_cast<std::int64_t>(i), apart);
    }
    if (seen) seen(out.images);
  }
  const double n = std::max<double>(1.0, static_cast<double>(out.images));
  out.loss /= n;
  out.top1 /= n;
  out.top5 /= n;
  if (flips) out.top1_tta = static_cast<double>(correct_tta) / n;
  out.seconds = seconds();
  return out;
}

void recalibrate(Session& session, const config::Config& config, const data::Dataset& train,
                 std::int64_t epoch) {
  data::LoaderOptions options = loader_options(config, train, data::Split::train);
  options.first_epoch = epoch;
  options.epochs = 1;
  options.wants = session.own_samples_of(Goal::recalibrate);
  data::Loader loader(train, options);
  data::Batch batch;
  for (std::int64_t i = 0; i < recalibration_batches && loader.next(batch); ++i)
    session.recalibrate(images_of(batch));
  session.finish_recalibration();
}

}  // namespace tessera::run
