#include "input/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "data/cifar.h"
#include "data/folder.h"
#include "data/order.h"
#include "data/synthetic.h"
#include "input/augment.h"

namespace tessera::run {
namespace {

std::unique_ptr<data::Dataset> open_source(const config::Config& config, data::Split split) {
  const config::Source source = config::parse_source(config.data.source);
  const models::ModelConfig& m = config.model;
  const auto seed = static_cast<std::uint64_t>(config.run.seed);
  if (source.kind == "cifar10") return data::cifar(data::cifar10_form(), source.dir, split);
  if (source.kind == "cifar100") return data::cifar(data::cifar100_form(), source.dir, split);
  if (source.has_class_folders())
    return data::image_folder(source.dir, split,
                              {.channels = static_cast<int>(m.channels),
                               .val_fraction = config.data.val_fraction,
                               .seed = seed,
                               .arrays = source.kind == "npy"});
  const data::SyntheticSpec spec{.h = static_cast<int>(m.image_h),
                                 .w = static_cast<int>(m.image_w),
                                 .c = static_cast<int>(m.channels),
                                 .classes = static_cast<int>(m.classes),
                                 .train = config.data.train_size,
                                 .test = config.data.test_size};
  return data::synthetic(spec, split, seed);
}

}  // namespace

std::unique_ptr<data::Dataset> open_data(const config::Config& config, data::Split split) {
  auto dataset = open_source(config, split);
  const auto agree = [&](const char* key, std::int64_t model, std::int64_t found) {
    if (model != found)
      throw Error(ErrorKind::usage,
                  fmt::format("the model has {} = {}, but the data has {}", key, model, found),
                  "data.source = \"" + config.data.source + "\"",
                  "choose data that has as many, or weights that were trained on such data");
  };
  agree("model.classes", config.model.classes, dataset->classes());
  agree("model.channels", config.model.channels, dataset->channels());
  return dataset;
}

std::string links_note(const data::Dataset& dataset) {
  const auto* folder = dynamic_cast<const data::ImageFolder*>(&dataset);
  if (!folder || folder->outside().empty()) return {};
  return "links in the data lead out of its folder, the first is " + folder->outside();
}

void note_links(const data::Dataset& dataset, std::vector<std::string>& notes) {
  const std::string note = links_note(dataset);
  if (!note.empty() && std::find(notes.begin(), notes.end(), note) == notes.end())
    notes.push_back(note);
}

data::LoaderOptions loader_options(const config::Config& config, const data::Dataset& dataset,
                                   data::Split split) {
  data::LoaderOptions o;
  o.height = static_cast<int>(config.model.image_h);
  o.width = static_cast<int>(config.model.image_w);
  o.seed = static_cast<std::uint64_t>(config.run.seed);
  o.workers = static_cast<int>(config.data.workers);
  o.batch = std::min(config.batch.global, std::max<std::int64_t>(1, dataset.size()));
  if (split == data::Split::test) {
    o.shuffle = false;
    o.epochs = 1;
    o.transform = eval_transform(config);
    o.bytes = !reads_arrays(config);
    return o;
  }
  o.transform = train_transform(config);
  o.bytes = trains_on_pixels(config);
  o.held = config.data.held > 0;
  const data::DeviceWork work = device_work(config);
  if (work.any())
    o.draw = [options = augment_options(config), work, h = o.height,
              w = o.width](const data::SampleKey& key) {
      return data::draw_picture(options, work, h, w, key);
    };
  if (const data::MixOptions mixing = mix_options(config); mixing.enabled())
    o.mix = [mixing, on_device = work.mixes, seed = o.seed,
             classes = dataset.classes()](data::Batch& b) {
      b.targets.resize(static_cast<std::size_t>(b.count) * static_cast<std::size_t>(classes));
      const data::BatchPart all{.seed = seed,
                                .epoch = b.epoch,
                                .first_position = b.first_position,
                                .count = b.count,
                                .begin = 0};
      const data::MixShape shape{.h = b.height, .w = b.width, .c = b.channels, .classes = classes};
      if (on_device)
        data::draw_partners(data::mix_targets(mixing, all, shape, b.labels, b.targets), b.draws);
      else if (b.pixels.empty())
        data::mix(mixing, all, shape, std::span(b.images), b.labels, b.targets);
      else
        data::mix(mixing, all, shape, std::span(b.pixels), b.labels, b.targets);
    };
  o.shuffle = config.data.shuffle;
  o.balanced = config.data.balanced;
  o.drop_last = config.data.drop_last;
  o.samples = used_samples(config, dataset);
  if (config.data.class_weights == "balanced") {
    std::vector<std::int32_t> labels(static_cast<std::size_t>(o.samples));
    for (std::size_t i = 0; i < labels.size(); ++i)
      labels[i] = dataset.label(static_cast<std::int64_t>(i));
    o.class_weights = data::class_weights(labels, dataset.classes());
  }
  return o;
}

std::int64_t used_samples(const config::Config& config, const data::Dataset& train) {
  return std::max<std::int64_t>(
      1, std::llround(static_cast<double>(train.size()) * config.data.fraction));
}

}  // namespace tessera::run
