// Evaluation of a session on a data set: loss, top-1, top-5 and a table per class.
#pragma once

#include <vector>

#include "data/dataset.h"
#include "report/console.h"
#include "run/session.h"

namespace tessera::run {

struct Score {
  double loss = 0, top1 = 0, top5 = 0, seconds = 0;
  std::int64_t images = 0;
  std::vector<std::int64_t> class_count, class_correct;  // per true class
};
// Draws a bar on `console` when there is one.
Score score(Session& session, const data::Dataset& dataset, std::int64_t batch, int workers, report::Console* console = nullptr);

}  // namespace tessera::run
