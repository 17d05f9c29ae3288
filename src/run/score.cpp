#include "run/score.h"

#include <algorithm>
#include <chrono>

#include "data/loader.h"
#include "run/dataset.h"

namespace tessera::run {

Score score(Session& session, const data::Dataset& dataset, std::int64_t batch, int workers, report::Console* console,
            const std::function<bool()>& stop) {
  const auto start = std::chrono::steady_clock::now();
  auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  data::LoaderOptions options = loader_options(session.config(), dataset, data::Split::test);
  options.batch = std::min(batch, dataset.size());
  options.workers = workers;
  data::Loader loader(dataset, options);
  const auto classes = static_cast<std::size_t>(session.config().model.classes);
  Score out;
  out.class_count.assign(classes, 0);
  out.class_correct.assign(classes, 0);
  data::Batch b;
  while (!(stop && stop()) && loader.next(b)) {
    const EvalResult r = session.evaluate(b.images, b.labels, session.averages() ? Weights::average : Weights::live);
    out.loss += r.loss_sum;
    out.top1 += r.correct;
    out.top5 += r.correct5;
    out.images += b.count;
    if (console) console->bar(static_cast<double>(out.images) / static_cast<double>(dataset.size()), seconds());
    for (std::size_t i = 0; i < b.labels.size(); ++i) {
      const auto row = r.logits.begin() + static_cast<std::ptrdiff_t>(i * classes);
      const auto label = static_cast<std::size_t>(b.labels[i]);
      ++out.class_count[label];
      out.class_correct[label] += std::max_element(row, row + static_cast<std::ptrdiff_t>(classes)) - row == b.labels[i];
    }
  }
  const double n = std::max<double>(1.0, static_cast<double>(out.images));
  out.loss /= n, out.top1 /= n, out.top5 /= n;
  out.seconds = seconds();
  return out;
}

}  // namespace tessera::run
