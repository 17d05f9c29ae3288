#include "run/saver.h"

#include <pthread.h>

#include <chrono>
#include <exception>
#include <memory>

#include "comm/pulse.h"
#include "run/checkpoint_parts.h"

namespace tessera::run {
namespace {

std::uintmax_t bytes_in(const std::filesystem::path& folder) {
  std::uintmax_t bytes = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    if (const std::uintmax_t size = at->file_size(gone); !gone) bytes += size;
  }
  return bytes;
}

}  // namespace

Saver::~Saver() {
  cancelled_ = std::uncaught_exceptions() > 0;  // other ranks may never write their part
  if (writing_.valid()) writing_.wait();
}

void Saver::save(Session& session, const Progress& progress, const nlohmann::json& notes, const std::filesystem::path& flush) {
  wait();
  take_snapshot(session, progress, notes, snapshot_);
  snapshot_.flush = flush;
  std::shared_ptr<CheckpointWrite> write;
  // The folder is there before anybody writes into it.
  ranks_.together([&] {
    if (ranks_.first()) write = std::make_shared<CheckpointWrite>(run_, progress.step);
  });
  writing_ = std::async(std::launch::async, [this, write] {
    ::pthread_setname_np(::pthread_self(), "tessera-saver");
    if (write)
      write->finish(snapshot_, retention_, ranks_.size(), cancelled_);
    else
      write_part(CheckpointWrite::part(run_, snapshot_.progress.step), ranks_.rank(), snapshot_);
  });
}

void Saver::poll() {
  if (writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) writing_.get();
}

// A checkpoint is written when its first rank has put it in its place: the others wait for that, or the next one would meet this one's
// folder.
void Saver::wait() {
  if (writing_.valid()) {
    comm::Pulse::doing("writing the checkpoint of step", snapshot_.progress.step);
    // As long as anything grows, this is no hang, however long it takes.
    const std::filesystem::path folder = CheckpointWrite::part(run_, snapshot_.progress.step);
    for (std::uintmax_t before = 0; writing_.wait_for(std::chrono::milliseconds(200)) != std::future_status::ready;)
      if (const std::uintmax_t bytes = bytes_in(folder); bytes != before && comm::Pulse::here())
        before = bytes, comm::Pulse::here()->beat();
    writing_.get();
  }
  ranks_.barrier();
}

}  // namespace tessera::run
