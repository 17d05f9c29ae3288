#include "input/augment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tessera::run {
namespace {

// The usual share that evaluation cuts off: 256 pixels before a crop of 224.
constexpr std::int64_t eval_margin_of = 8, eval_margin_to = 7;

}  // namespace

data::AugmentOptions augment_options(const config::Config& config) {
  const config::Data& d = config.data;
  data::AugmentOptions o;
  o.resize_first = d.resize == "before";
  o.resized_crop = d.resized_crop;
  o.crop = static_cast<int>(d.crop);
  o.padding = d.crop_mode == "reflect" ? data::Padding::reflect : data::Padding::zero;
  o.flip = d.flip == "random"        ? data::Flip::random
           : d.flip == "alternating" ? data::Flip::alternating
                                     : data::Flip::none;
  if (!d.randaugment.empty()) {
    o.randaugment_ops = static_cast<int>(d.randaugment[0]);
    o.randaugment_magnitude = static_cast<int>(d.randaugment[1]);
  }
  o.autoaugment = d.autoaugment;
  std::copy(d.color_jitter.begin(), d.color_jitter.end(), o.jitter.begin());
  o.erase.probability = d.erase;
  o.erase.random = d.erase_value == "random";
  o.cutout = static_cast<int>(d.cutout);
  o.eval_resize = static_cast<int>(d.eval_resize);
  const std::int64_t side = std::min(config.model.image_h, config.model.image_w);
  o.eval_keep = d.eval_resize == 0 || d.eval_resize == side;  // nothing to resize
  o.filter = d.interpolation == "bicubic" ? data::Filter::bicubic : data::Filter::bilinear;
  o.eval_squash = d.eval_crop == "squash";
  // Photographs have a margin to spare; small images that were made for their size do not.
  if (d.eval_resize == 0 && config::parse_source(d.source).kind == "folder")
    o.eval_resize = static_cast<int>(side * eval_margin_of / eval_margin_to);
  return o;
}

data::MixOptions mix_options(const config::Config& config) {
  const config::Data& d = config.data;
  return {.mixup = d.mixup,
          .cutmix = d.cutmix,
          .probability = d.mix_prob,
          .cutmix_share = d.mix_switch,
          .smoothing = config.loss.label_smoothing};
}

data::Normalisation normalisation(const config::Config& config) {
  data::Normalisation statistics = data::normalisation(config.data.normalize);
  if (!config.data.mean.empty()) statistics.mean = config.data.mean;
  if (!config.data.deviation.empty()) statistics.deviation = config.data.deviation;
  return statistics;
}

data::DeviceWork device_work(const config::Config& config) {
  if (reads_arrays(config)) return {};
  const std::string& on = config.data.augment_on;
  if (on == "loader" || (on == "auto" && config.run.device == "cpu")) return {};
  return data::device_work(augment_options(config), mix_options(config));
}

bool reads_arrays(const config::Config& config) {
  return config::parse_source(config.data.source).kind == "npy";
}

data::Resampling fit_held(const config::Config& config) {
  const auto h = static_cast<int>(config.model.image_h), w = static_cast<int>(config.model.image_w);
  return data::centered(static_cast<int>(config.data.held_h), static_cast<int>(config.data.held_w),
                        h, w, h, w, augment_options(config).filter);
}

bool trains_on_pixels(const config::Config& config) {
  if (reads_arrays(config)) return false;
  if (device_work(config).any()) return true;
  return augment_options(config).ends_with_pixels() && !mix_options(config).blends();
}

config::Config photographs_for(const models::ModelConfig& model) {
  config::Config config;
  config.model = model;
  config.data.source = "folder:.";
  return config;
}

void follow_preprocess(const nlohmann::json& preprocess, const std::string& where,
                       config::Config& config) {
  const auto refuse = [&](const char* key, const std::string& expected) {
    throw Error(ErrorKind::weights,
                fmt::format("the weights' preprocess.{} is {}; expected {}", key,
                            preprocess[key].dump(), expected),
                where);
  };
  const auto channels = static_cast<std::size_t>(config.model.channels);
  const auto read = [&](const char* key, bool positive, std::vector<double>& list) {
    if (!preprocess.is_object() || !preprocess.contains(key)) return;
    std::vector<double> found;
    for (const nlohmann::json& value : preprocess[key])
      if (value.is_number()) found.push_back(value.get<double>());
    const bool sound = std::all_of(found.begin(), found.end(), [&](double v) {
      return std::isfinite(v) && (!positive || v > 0);
    });
    if (!preprocess[key].is_array() || found.size() != preprocess[key].size() ||
        (found.size() != 1 && found.size() != channels) || !sound)
      refuse(key, fmt::format("1 or {} {}numbers", channels, positive ? "positive " : ""));
    list = found;
  };
  read("mean", false, config.data.mean);
  read("std", true, config.data.deviation);
  const auto word = [&](const char* key, std::string& value, const char* one, const char* other) {
    if (!preprocess.is_object() || !preprocess.contains(key)) return;
    if (preprocess[key] != one && preprocess[key] != other)
      refuse(key, fmt::format("\"{}\" or \"{}\"", one, other));
    value = preprocess[key].get<std::string>();
  };
  word("interpolation", config.data.interpolation, "bilinear", "bicubic");
  word("crop", config.data.eval_crop, "center", "squash");
  if (!preprocess.is_object() || !preprocess.contains("resize")) return;
  const nlohmann::json& resize = preprocess["resize"];
  const std::int64_t side = std::min(config.model.image_h, config.model.image_w);
  if (!resize.is_number_integer() || resize < 0 || resize > 16384 || (resize != 0 && resize < side))
    refuse("resize", fmt::format("0, or pixels from the model's {} to 16384", side));
  config.data.eval_resize = resize == 0 ? side : resize.get<std::int64_t>();
}

data::Transform train_transform(const config::Config& config) {
  const models::ModelConfig& m = config.model;
  return data::make_train_transform(left_to_loader(augment_options(config), device_work(config)),
                                    static_cast<int>(m.image_h), static_cast<int>(m.image_w),
                                    static_cast<int>(m.channels), normalisation(config));
}

data::Transform eval_transform(const config::Config& config) {
  const models::ModelConfig& m = config.model;
  return data::make_eval_transform(augment_options(config), static_cast<int>(m.image_h),
                                   static_cast<int>(m.image_w), static_cast<int>(m.channels),
                                   normalisation(config));
}

}  // namespace tessera::run
