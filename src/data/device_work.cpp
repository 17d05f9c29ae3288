#include "data/device_work.h"

#include <algorithm>

#include "base/check.h"

namespace tessera::data {
namespace {

// Whether a picture is changed between the flip and normalisation.
bool changes_colours(const AugmentOptions& o) {
  return o.randaugment_ops > 0 || o.autoaugment ||
         std::any_of(o.jitter.begin(), o.jitter.end(), [](double s) { return s > 0; });
}

PictureBox box_of(const Region& region) { return {region.top, region.left, region.h, region.w}; }

}  // namespace

DeviceWork device_work(const AugmentOptions& options, const MixOptions& mixing) {
  if (options.erase.probability > 0 && options.erase.random) return {};
  DeviceWork work;
  const bool of_the_models_size = options.resize_first || options.resized_crop > 0;
  work.moves = (options.crop > 0 || options.flip != Flip::none) && of_the_models_size &&
               !changes_colours(options);
  work.hides = options.erase.probability > 0 || options.cutout > 0;
  work.mixes = mixing.enabled();
  return work;
}

AugmentOptions left_to_loader(AugmentOptions options, const DeviceWork& work) {
  if (work.moves) {
    options.crop = 0;
    options.flip = Flip::none;
  }
  if (work.hides) {
    options.erase.probability = 0;
    options.cutout = 0;
  }
  return options;
}

bool touches_pictures(const AugmentOptions& left) {
  return left.resized_crop > 0 || left.crop > 0 || left.flip != Flip::none ||
         changes_colours(left) || !left.ends_with_pixels();
}

PictureDraw draw_picture(const AugmentOptions& options, const DeviceWork& work, int height,
                         int width, const SampleKey& key) {
  PictureDraw row;
  if (work.moves && options.crop > 0) {
    const Region from = draw_padded_crop(Draw(key, "crop"), height, width, options.crop);
    row.top = from.top;
    row.left = from.left;
  }
  if (work.moves) row.mirrored = flipped(options.flip, key);
  if (work.hides && options.erase.probability > 0)
    row.hidden[0] = box_of(draw_erase(Draw(key, "erase"), options.erase, height, width));
  if (work.hides && options.cutout > 0)
    row.hidden[1] = box_of(draw_cutout(Draw(key, "cutout"), options.cutout, height, width));
  return row;
}

void draw_partners(const Mix& how, std::span<PictureDraw> draws) {
  if (how.lambda == 1) return;
  const double share = how.is_cutmix() ? 1.0 : how.lambda;
  const auto keep = static_cast<std::int32_t>(share * PictureDraw::whole);
  CHECK(static_cast<double>(keep) == share * PictureDraw::whole, "shares are drawn on a grid");
  const std::size_t paired = draws.size() / 2 * 2;  // the last may have no partner
  for (PictureDraw& row : draws.first(paired)) {
    row.keep = keep;
    row.patch = box_of(how.box);
  }
}

}  // namespace tessera::data
