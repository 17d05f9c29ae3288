#include "train/predictions.h"

#include "base/check.h"
#include "files/text.h"
#include "report/html.h"
#include "report/predictions.h"

namespace tessera::run {
namespace {

constexpr int most_pixels = 64;  // of a side

}  // namespace

void write_predictions(const std::filesystem::path& folder, const Score& score,
                       const data::Dataset& test) {
  if (score.images == 0) return;
  report::Predictions out;
  out.classes = test.class_names();
  out.images = score.class_count;
  out.correct = score.class_correct;
  out.confusion = score.confusion;
  for (const Score::Said& s : score.some) {
    data::Image image;
    try {
      test.get(s.sample, {}, image);
    } catch (const Error&) {
      continue;  // it was replaced in the evaluation, too
    }
    const auto bytes = static_cast<std::size_t>(image.h) * static_cast<std::size_t>(image.w) *
                       static_cast<std::size_t>(image.c);
    if (bytes == 0 || image.pixels.size() < bytes) continue;
    out.samples.push_back({.name = test.sample_name(s.sample),
                           .label = s.label,
                           .said = s.said,
                           .probability = s.probability,
                           .png = report::base64(report::small_png(
                               image.pixels.data(), image.h, image.w, image.c, most_pixels))});
  }
  // The model may have more classes than the data set has names.
  if (out.classes.size() != out.images.size()) return;
  files::write_atomically(folder / "predictions.json", to_json(out).dump() + "\n");
}

}  // namespace tessera::run
