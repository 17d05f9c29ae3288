// The augmentations of a run: the [data] section of a configuration as options of the data room.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "config/config.h"
#include "data/augment.h"
#include "data/device_work.h"
#include "data/mix.h"

namespace tessera::run {

data::AugmentOptions augment_options(const config::Config& config);
// With loss.label_smoothing: mixed targets carry it, so the loss must not smooth them again.
data::MixOptions mix_options(const config::Config& config);
data::Normalisation normalisation(const config::Config& config);
// The part of training's augmentations that the device does, by data.augment_on.
data::DeviceWork device_work(const config::Config& config);
// How pictures that the device holds (data.held_h, data.held_w) become ones of the model's size: as
// the loader fits them.
data::Resampling fit_held(const config::Config& config);
// Whether the data are arrays of numbers instead of 8-bit pictures: then all batches are numbers,
// which the loader normalises.
bool reads_arrays(const config::Config& config);
// Whether the batches of training are pixels, which the program normalises. Mixup blends normalised
// numbers, and erasing and cutout write them: where that is not left to the device the loader
// normalises.
bool trains_on_pixels(const config::Config& config);

// A configuration of this model whose images are photographs, as those of a folder: what prediction
// begins with.
config::Config photographs_for(const models::ModelConfig& model);
// Takes over what weights say of the images they were trained on: {"mean", "std", "resize",
// "interpolation", "crop"}, as the keys data.mean, data.deviation, data.eval_resize,
// data.interpolation and data.eval_crop; resize 0: no margin is cut off, whatever the source. What
// they do not say stays as it is. Error(weights) on anything that cannot be meant.
void follow_preprocess(const nlohmann::json& preprocess, const std::string& where,
                       config::Config& config);

// The transforms of a loader for training, and for evaluation and prediction: to the model's size
// and channels.
data::Transform train_transform(const config::Config& config);
data::Transform eval_transform(const config::Config& config);

}  // namespace tessera::run
