#include "train/batches.h"

namespace tessera::run {

bool next_batch(data::Loader& loader, const Session& session, const config::Config& config,
                data::Batch& batch) {
  if (!loader.next(batch)) return false;
  if (!config::parse_source(config.data.source).has_class_folders())
    return true;  // others have no bad images
  session.from_first_stage(std::as_writable_bytes(std::span(batch.labels)));
  session.from_first_stage(std::as_writable_bytes(std::span(batch.targets)));
  session.from_first_stage(std::as_writable_bytes(std::span(batch.weights)));
  return true;
}

void hold_pictures(Session& session, const data::Dataset& train) {
  if (!session.holds_pictures()) return;
  constexpr std::size_t at_once = 16 << 20;  // bytes on their way
  const std::int64_t held = session.config().data.held;
  std::vector<std::uint8_t> pictures;
  data::Image image;
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < held; ++i) {
    train.get(i, {}, image);
    pictures.insert(pictures.end(), image.pixels.begin(), image.pixels.end());
    if (i + 1 < held && pictures.size() < at_once) continue;
    session.hold(first, pictures);
    pictures.clear();
    first = i + 1;
  }
}

}  // namespace tessera::run
