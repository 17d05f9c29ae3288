// Batches on their way from a loader to a session.
#pragma once

#include "config/config.h"
#include "data/loader.h"
#include "session/session.h"

namespace tessera::run {

// The loader's next batch, on every rank. An image that cannot be read is replaced, and its label
// with it: only who reads it knows, and tells the stages of a pipeline that need the label alone.
bool next_batch(data::Loader& loader, const Session& session, const config::Config& config,
                data::Batch& batch);

// Brings the pictures of the training set to the device where the configuration says that it holds
// them.
void hold_pictures(Session& session, const data::Dataset& train);

// The images of a batch in the form that it has.
inline Images images_of(const data::Batch& batch) {
  if (!batch.samples.empty()) return Images(std::span(batch.samples), std::span(batch.draws));
  if (!batch.draws.empty()) return Images(std::span(batch.pixels), std::span(batch.draws));
  return batch.pixels.empty() ? Images(batch.images) : Images(batch.pixels);
}

}  // namespace tessera::run
