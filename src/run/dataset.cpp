#include "run/dataset.h"

#include "base/check.h"
#include "data/synthetic.h"

namespace tessera::run {

std::unique_ptr<data::Dataset> open_data(const config::Config& config, data::Split split) {
  if (const config::Source source = config::parse_source(config.data.source); source.kind != "synthetic")
    throw Error(ErrorKind::usage, "'" + source.kind + "' is not read by this version", "data.source = \"" + config.data.source + "\"",
                "choose synthetic or synthetic:HxWxC,CLASSES");
  const models::ModelConfig& m = config.model;
  const data::SyntheticSpec spec{static_cast<int>(m.image_h), static_cast<int>(m.image_w), static_cast<int>(m.channels),
                                 static_cast<int>(m.classes), config.data.train_size,      config.data.test_size};
  return data::synthetic(spec, split, static_cast<std::uint64_t>(config.run.seed));
}

}  // namespace tessera::run
