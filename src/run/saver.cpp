#include "run/saver.h"

#include <chrono>

namespace tessera::run {

Saver::~Saver() {
  if (writing_.valid()) writing_.wait();
}

void Saver::save(Session& session, const Progress& progress, const nlohmann::json& notes, const std::filesystem::path& flush) {
  wait();
  take_snapshot(session, progress, notes, snapshot_);
  snapshot_.flush = flush;
  writing_ = std::async(std::launch::async, [this] { write_checkpoint(run_, snapshot_, retention_); });
}

void Saver::poll() {
  if (writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) writing_.get();
}

void Saver::wait() {
  if (writing_.valid()) writing_.get();
}

}  // namespace tessera::run
