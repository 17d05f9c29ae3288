#include "ranks/watchdog.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "comm/call_off.h"
#include "ranks/hang_dump.h"
#include "ranks/stack_trace.h"

namespace tessera::run {
namespace {

constexpr double starting_s = 10;  // while a job starts, nobody is called hanging sooner
constexpr double call_off_s = 1;   // for what a card waits for; a guard waits longer than that
thread_local Watchdog* mine = nullptr;
std::mutex all_mutex;
std::vector<Watchdog*> all;  // of this process

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Watchdog* Watchdog::here() { return mine; }

Watchdog::Watchdog(comm::Heartbeat& heartbeat, Options options, HeartbeatFolder folder)
    : heartbeat_(heartbeat),
      options_(std::move(options)),
      before_(mine),
      rank_thread_(::pthread_self()),
      folder_(std::move(folder)),
      me_(this_process(options_.rank)) {
  mine = this;
  heartbeat_.beat();
  others_.resize(static_cast<std::size_t>(options_.ranks));
  prepare_stack_traces();
  {
    const std::lock_guard lock(all_mutex);
    all.push_back(this);
  }
  if (folder_) start();
}

Watchdog::~Watchdog() {
  mine = before_;
  {
    const std::lock_guard lock(all_mutex);
    std::erase(all, this);
  }
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  ++me_.tick;
  me_.ended = true;
  folder_.write(me_);
  done();
}

void Watchdog::done() {
  if (options_.rank == 0 && !given_folder()) folder_.remove();
}

std::string Watchdog::meet_in(const std::filesystem::path& folder) {
  const std::lock_guard lock(mutex_);
  running_ = true;
  if (options_.rank == 0) folder_.leave(HeartbeatFolder::Sign::opened);
  if (thread_.joinable()) return problem_;
  if (options_.ranks > 1) folder_ = HeartbeatFolder(folder);
  start();
  return problem_;
}

void Watchdog::start() {
  if (options_.tell) options_.tell(folder_);
  if (!folder_.write(me_))  // the others may look before the first tick
    problem_ = fmt::format("{}: {}", folder_.path().string(), std::strerror(errno));
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the rank's own thread
  thread_ = std::thread([this] { watch(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

double Watchdog::patience() const {
  return running_ ? options_.hang_s : std::max(options_.hang_s, starting_s);
}

void Watchdog::watch() {
  const double tick_s = options_.hang_s > 0 ? std::clamp(options_.hang_s / 20, 0.05, 2.0) : 1.0;
  std::unique_lock lock(mutex_);
  double last = now_s();
  while (!wake_.wait_for(lock, std::chrono::duration<double>(tick_s), [this] { return stop_; })) {
    // The whole job was suspended, or the machine was: nobody has hung meanwhile.
    if (const double now = now_s(), gap = now - std::exchange(last, now); gap > 1 + 2 * tick_s) {
      heartbeat_.beat();
      for (Watched& other : others_) other.since = -1;
    }
    me_.look = comm::look_with_cards(heartbeat_);
    // Inside a call to a disk a rank cannot move; it has a limit of its own.
    if (!me_.look.disk.empty() && (options_.disk_s == 0 || me_.look.disk_s < options_.disk_s))
      me_.look.idle_s = 0;
    ++me_.tick;
    try {
      folder_.write(me_);
      if (const auto verdict = folder_.verdict()) {  // somebody has said why
        const bool hang = verdict->code == static_cast<int>(ErrorKind::hang);
        if (hang) leave_parts();
        comm::call_off_all(call_off_s);
        if (hang) folder_.wait_for_dump();
        std::_Exit(verdict->code);
      }
      if (options_.hang_s > 0) look_around();
    } catch (const std::exception&) {  // no memory: the rank itself will meet that and say so
    }
  }
}

void Watchdog::look_around() {
  if (me_.look.idle_s < patience() / 8) {
    for (Watched& other : others_) other.since = -1;
    return;
  }
  const double now = now_s();
  std::vector<Seen> table;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    Watched& other = others_[static_cast<std::size_t>(rank)];
    std::optional<Seen> seen = rank == options_.rank ? me_ : folder_.read(rank);
    if (seen && (other.since < 0 || seen->tick != other.seen.tick || rank == options_.rank))
      other = {*seen, now};
    if (!seen && other.since < 0) {
      other = {Seen(), now};
      other.seen.rank = rank;
    }
    table.push_back(other.seen);
    table.back().silent_s = now - other.since;
    table.back().state = state_of(other.seen);
  }
  const std::optional<Finding> finding = who_hangs(table, patience());
  if (!finding) return;
  const ErrorKind kind = finding->gone ? ErrorKind::rank_lost : ErrorKind::hang;
  std::string help = fmt::format(
      "the same command goes on from the newest checkpoint; parallel.hang_s = {} is how long "
      "nothing may move",
      options_.hang_s);
  const auto in_disk = [&](int rank) {
    return !table[static_cast<std::size_t>(rank)].look.disk.empty();
  };
  if (std::any_of(finding->ranks.begin(), finding->ranks.end(), in_disk))
    help +=
        fmt::format(", parallel.disk_s = {} how long a call to a disk may take", options_.disk_s);
  const std::filesystem::path dump = finding->gone ? "" : next_dump(options_.log);
  const Error error(kind, finding->message, "", help);
  if (!dump.empty()) leave_parts();
  comm::call_off_all(call_off_s);
  end_job(folder_, {error.exit_code(), error.what()}, options_.log, [&]() -> std::string {
    const std::string problem =
        write_dump(folder_, dump, finding->message, table, HeartbeatFolder::parts_within);
    if (dump.empty()) return "";
    if (problem.empty()) return dump.string() + " shows what every rank was doing";
    return fmt::format("{} would show what every rank was doing, but could not be written: {}",
                       dump.string(), problem);
  });
}

void Watchdog::leave_parts() {
  const std::lock_guard lock(all_mutex);
  for (const Watchdog* dog : all)
    leave_part(dog->folder_, dog->options_.rank,
               dump_part(dog->me_, dog->heartbeat_,
                         stack_of(dog->rank_thread_, "    ") +
                             (dog == all.front() ? kernel_stack_of(::getpid(), "    ") : "")));
}

void hang_if_asked(int rank, std::int64_t step) {
  static const char* const asked = std::getenv("TESSERA_HANG");
  long long at_rank = 0, at_step = 0;
  if (!asked || std::sscanf(asked, "%lld:%lld", &at_rank, &at_step) != 2 || at_rank != rank ||
      at_step != step)
    return;
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

}  // namespace tessera::run
