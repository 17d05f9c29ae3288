#include "checkpoint/saver.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include "checkpoint/checkpoint_parts.h"
#include "comm/heartbeat.h"

namespace tessera::run {
namespace {

std::uintmax_t bytes_in(const std::filesystem::path& folder) {
  std::uintmax_t bytes = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    if (const std::uintmax_t size = at->file_size(gone); !gone) bytes += size;
  }
  return bytes;
}

}  // namespace

Saver::Saver(std::filesystem::path run, Retention retention, Ranks ranks, double disk_s,
             SaveInterval interval)
    : run_(std::move(run)),
      retention_(retention),
      ranks_(ranks),
      interval_(interval),
      last_(std::chrono::steady_clock::now()) {
  // A rank writes its part with several calls; it is the watchdog that says which one hangs.
  state_.patience_s = disk_s > 0 ? std::max(state_.patience_s, 4 * disk_s) : 0;
}

Saver::~Saver() {
  state_.cancelled = std::uncaught_exceptions() > 0;
  if (writing_.valid()) watch();
}

void Saver::save(Session& session, const Progress& progress, const nlohmann::json& notes,
                 const std::filesystem::path& flush) {
  const auto start = std::chrono::steady_clock::now();
  wait();
  take_snapshot(session, progress, notes, snapshot_);
  snapshot_.flush = flush;
  std::shared_ptr<CheckpointWrite> write;
  // The folder is there before anybody writes into it.
  ranks_.together([&] {
    if (ranks_.first()) write = std::make_shared<CheckpointWrite>(run_, progress.step);
  });
  writing_ = std::async(std::launch::async, [this, write] {
    const files::DiskObserver::Here told(&calls_);
    ::pthread_setname_np(::pthread_self(), "tessera-saver");
    if (write)
      write->finish(snapshot_, retention_, ranks_.size(), state_);
    else
      write_part(CheckpointWrite::part(run_, snapshot_.progress.step), ranks_.rank(), snapshot_);
  });
  if (interval_.adapts())
    learn(progress.step,
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

void Saver::learn(std::int64_t step, double cost_s) {
  const auto now = std::chrono::steady_clock::now();
  const double since = std::chrono::duration<double>(now - last_).count() - cost_s;
  const auto steps = static_cast<double>(std::max<std::int64_t>(step - last_step_, 1));
  const double slowest_cost = ranks_.most(cost_s),
               slowest_step = ranks_.most(last_step_ < 0 ? 0 : since / steps);
  // Nobody knows at the first save how long steps take, so the next comes as soon.
  if (last_step_ >= 0) interval_.saved(step, slowest_cost, slowest_step);
  if (last_step_ < 0) interval_.again(step);
  last_step_ = step;
  last_ = std::chrono::steady_clock::now();
}

void Saver::poll() {
  if (writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    end();
}

void Saver::end() {
  writing_.get();
  notes_.insert(notes_.end(), state_.notes.begin(), state_.notes.end());
  state_.notes.clear();
}

std::vector<std::string> Saver::remarks() {
  std::vector<std::string> out = std::exchange(notes_, {});
  if (std::string interval = interval_.remark(); !interval.empty())
    out.push_back(std::move(interval));
  return out;
}

// Three states are no hang: a checkpoint that grows, a call to a disk (within parallel.disk_s,
// which the watchdog knows), and waiting for the part of another rank, who is then the one that
// must move.
void Saver::watch() {
  comm::Heartbeat* const heartbeat = comm::Heartbeat::here();
  const std::filesystem::path folder = CheckpointWrite::part(run_, snapshot_.progress.step);
  std::uintmax_t before = 0;
  std::uint64_t seen = calls_.now().number;
  int waited_for = -1;
  const auto wait_for = [&](int rank) {
    if (!heartbeat || !ranks_.world() || rank == waited_for) return;
    const std::string scope =
        fmt::format("the part of rank {} of the checkpoint", std::max(rank, waited_for));
    if (rank >= 0)
      heartbeat->wait(0, comm::Verb::recv, 0, scope);
    else
      heartbeat->leave(0, comm::Verb::recv, 0, scope);
    waited_for = rank;
  };
  if (heartbeat) heartbeat->disk(calls_.now().call);
  while (writing_.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) {
    // A rank that has ended brings no part any more; who waits for it in a verb is told why.
    if (ranks_.world() && !ranks_.world()->stopped().empty()) state_.cancelled = true;
    if (!heartbeat) continue;
    if (const DiskCalls::Now now = calls_.now(); now.number != seen) {
      seen = now.number;
      heartbeat->disk(now.call);
    }
    if (const std::uintmax_t bytes = bytes_in(folder); bytes != before) {
      before = bytes;
      heartbeat->beat();
    }
    wait_for(state_.waits_for);
  }
  wait_for(-1);
  if (heartbeat) heartbeat->disk("");
}

// A checkpoint is written when its first rank has put it in its place: the others wait for that, or
// the next one would meet this one's folder.
void Saver::wait() {
  if (writing_.valid()) {
    comm::Heartbeat::doing("writing the checkpoint of step", snapshot_.progress.step);
    watch();
    end();
  }
  ranks_.barrier();
}

}  // namespace tessera::run
