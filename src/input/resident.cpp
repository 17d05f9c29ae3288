#include "input/resident.h"

#include <fmt/format.h>

#include "base/check.h"
#include "input/augment.h"
#include "input/dataset.h"

namespace tessera::run {

std::string why_not_resident(const config::Config& config, const data::Dataset& train) {
  const models::ModelConfig& m = config.model;
  if (config::parse_source(config.data.source).has_class_folders())
    return "images of a folder are decoded when they are read";
  if ((train.height() != m.image_h || train.width() != m.image_w) && config.data.resize != "before")
    return fmt::format(
        "the data has {} x {} pixels and the model {} x {}, and the loader resizes after it has "
        "augmented (data.resize)",
        train.height(), train.width(), m.image_h, m.image_w);
  const data::DeviceWork work = device_work(config);
  if (touches_pictures(left_to_loader(augment_options(config), work)) ||
      (mix_options(config).enabled() && !work.mixes))
    return "an augmentation is left to the loader (data.augment_on, docs/data.md)";
  return "";
}

void settle_resident(config::Config& config, const data::Dataset& train) {
  config.data.held = config.data.held_h = config.data.held_w = 0;
  if (config.data.resident == "no") return;
  const bool asked = config.data.resident == "yes";
  if (!asked && config.run.device == "cpu") return;
  const std::string why_not = why_not_resident(config, train);
  if (asked && !why_not.empty())
    throw Error(ErrorKind::usage, "the pictures cannot stay on the device: " + why_not,
                "data.resident = \"yes\"", "choose auto or no");
  const std::int64_t samples = used_samples(config, train);
  const std::int64_t bytes = samples * train.height() * train.width() * train.channels();
  if (!why_not.empty() || (!asked && bytes > most_resident_bytes)) return;
  config.data.held = samples;
  config.data.held_h = train.height();
  config.data.held_w = train.width();
}

}  // namespace tessera::run
