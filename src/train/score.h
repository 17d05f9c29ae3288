// Evaluation of a session on a data set: loss, top-1, top-5 and a table per class.
#pragma once

#include <functional>
#include <vector>

#include "data/dataset.h"
#include "report/console.h"
#include "session/session.h"

namespace tessera::run {

// The probabilities of one image.
std::vector<double> softmax(std::vector<double> logits);

struct Score {
  double loss = 0, top1 = 0, top5 = 0, seconds = 0;
  double top1_tta = -1;  // of the mean prediction of image and mirror image, where data.tta asks
                         // for it; never in place of top1
  std::int64_t images = 0;
  bool finite = true;                                    // the loss and every logit
  std::vector<std::int64_t> class_count, class_correct;  // per true class
  // [true][said], of a model with few classes; and what was said of some images at even distances.
  std::vector<std::int64_t> confusion;
  struct Said {
    std::int64_t sample = 0, label = 0, said = 0;
    double probability = 0;
  };
  std::vector<Said> some;
};
// `config`: how the images are prepared (data) for the session's model. Draws a bar on `console`
// when there is one. `stop` is asked before each batch; a score that was stopped has seen fewer
// images. `seen` is told after each batch.
Score score(Session& session, const config::Config& config, const data::Dataset& dataset,
            std::int64_t batch, int workers, report::Console* console = nullptr,
            const std::function<bool()>& stop = {},
            const std::function<void(std::int64_t images)>& seen = {});

// New running statistics for averaged weights, from the first batches of an epoch as training saw
// them.
void recalibrate(Session& session, const config::Config& config, const data::Dataset& train,
                 std::int64_t epoch);

}  // namespace tessera::run
