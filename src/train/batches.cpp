#include "train/batches.h"

namespace tessera::run {

bool next_batch(data::Loader& loader, const Session& session, const config::Config& config,
                data::Batch& batch) {
  if (!loader.next(batch)) return false;
  if (config::parse_source(config.data.source).kind != "folder")
    return true;  // others have no bad images
  session.from_first_stage(std::as_writable_bytes(std::span(batch.labels)));
  session.from_first_stage(std::as_writable_bytes(std::span(batch.targets)));
  session.from_first_stage(std::as_writable_bytes(std::span(batch.weights)));
  return true;
}

}  // namespace tessera::run
