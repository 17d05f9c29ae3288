#include "run/dataset.h"

#include "data/source.h"

namespace tessera::run {

std::unique_ptr<data::Dataset> open_data(const config::Config& config, data::Split split) {
  data::SourceSpec spec = data::parse_source(config.data.source);
  const models::ModelConfig& m = config.model;
  spec.synthetic = {static_cast<int>(m.image_h), static_cast<int>(m.image_w), static_cast<int>(m.channels), static_cast<int>(m.classes),
                    config.data.train_size, config.data.test_size};
  return data::open_dataset(spec, split, static_cast<std::uint64_t>(config.run.seed));
}

}  // namespace tessera::run
