#include "data/arrays/augment_numbers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace tessera::data {

NumberTransform::NumberTransform(const AugmentOptions& options, bool train, int height, int width,
                                 int channels, const Normalisation& statistics)
    : o_(options), train_(train), h_(height), w_(width), c_(channels) {
  const auto per_channel = [&](const std::vector<double>& list, std::vector<double>& out) {
    for (std::size_t k = 0; k < static_cast<std::size_t>(channels); ++k)
      out.push_back(static_cast<double>(static_cast<float>(list[list.size() == 1 ? 0 : k])));
  };
  per_channel(statistics.mean, mean_);
  per_channel(statistics.deviation, deviation_);
}

Resampling NumberTransform::fit(int image_h, int image_w, const SampleKey& key) const {
  if (train_ && o_.resized_crop > 0) {
    const Draw draw(key, "resized crop");
    return resized(draw_resized_crop(draw, image_h, image_w, o_.resized_crop, 1.0, o_.ratio_low,
                                     o_.ratio_high),
                   h_, w_, o_.filter);
  }
  if (!train_ && o_.eval_squash) return resized({0, 0, image_h, image_w}, h_, w_, o_.filter);
  int cover_h = h_, cover_w = w_;
  if (!train_ && o_.eval_resize > 0) {
    const std::int64_t side = std::min(h_, w_);
    cover_h = static_cast<int>(std::int64_t{h_} * o_.eval_resize / side);
    cover_w = static_cast<int>(std::int64_t{w_} * o_.eval_resize / side);
  }
  return centered(image_h, image_w, cover_h, cover_w, h_, w_, o_.filter);
}

// The padded crop and the flip of training.
void NumberTransform::move(std::vector<float>& numbers, int h, int w, const SampleKey& key) const {
  const bool mirrored = flipped(o_.flip, key);
  if (o_.crop == 0 && !mirrored) return;
  const Region from =
      o_.crop > 0 ? draw_padded_crop(Draw(key, "crop"), h, w, o_.crop) : Region{0, 0, h, w};
  thread_local std::vector<float> moved;
  moved.assign(numbers.size(), 0.0F);
  const auto c = static_cast<std::size_t>(c_);
  for (int y = 0; y < h; ++y)
    for (int x = 0; x < w; ++x) {
      int row = from.top + y, column = from.left + (mirrored ? w - 1 - x : x);
      if (o_.padding == Padding::reflect) {
        row = reflected(row, h);
        column = reflected(column, w);
      }
      if (row < 0 || row >= h || column < 0 || column >= w) continue;
      std::copy_n(&numbers[(static_cast<std::size_t>(row) * w + column) * c], c,
                  &moved[(static_cast<std::size_t>(y) * w + x) * c]);
    }
  std::swap(numbers, moved);
}

void NumberTransform::apply(const Image& image, const SampleKey& key, std::span<float> out) const {
  if (image.c != c_)
    throw Error(ErrorKind::data,
                fmt::format("an array has {} channels, the model reads {}", image.c, c_), "data");
  thread_local std::vector<float> now, next;
  int h = image.h, w = image.w;
  now = image.numbers;
  const auto fit_to_model = [&](bool always) {
    if (!always && h == h_ && w == w_) return;
    resample(now, h, w, c_, fit(h, w, key), next);
    std::swap(now, next);
    h = h_;
    w = w_;
  };
  if (train_) {
    const bool random_part = o_.resized_crop > 0;
    if (random_part || o_.resize_first) fit_to_model(random_part);
    move(now, h, w, key);
    if (!random_part && !o_.resize_first) fit_to_model(false);
  } else {
    fit_to_model(!(o_.eval_keep || o_.eval_resize == 0 || o_.eval_squash));
  }
  CHECK(now.size() == out.size(), "the output has the size of the model's image");
  const auto c = static_cast<std::size_t>(c_);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>((static_cast<double>(now[i]) - mean_[i % c]) / deviation_[i % c]);
  if (!train_) return;
  if (o_.erase.probability > 0) {
    const Draw draw(key, "erase");
    const Region region = draw_erase(draw, o_.erase, h_, w_);
    o_.erase.random ? erase_random(region, draw.key().with("values"), w_, c_, out)
                    : erase(region, w_, c_, out);
  }
  if (o_.cutout > 0) erase(draw_cutout(Draw(key, "cutout"), o_.cutout, h_, w_), w_, c_, out);
}

}  // namespace tessera::data
