#include "ranks/restart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "base/check.h"
#include "base/printable.h"
#include "base/say.h"
#include "base/threads.h"
#include "config/shrink.h"
#include "ranks/hosts.h"
#include "ranks/memory_place.h"
#include "ranks/supervise.h"

namespace tessera::run {
namespace {

using std::chrono::steady_clock;

std::chrono::seconds told_or(const char* variable, int otherwise) {
  const char* told = std::getenv(variable);
  return std::chrono::seconds(told && std::atoi(told) > 0 ? std::atoi(told) : otherwise);
}

// How long after the last time hosts that are lost are asked again.
std::chrono::seconds ask_again_after() { return told_or("TESSERA_ASK_HOSTS_S", 10); }

// How long a host that is asked for a sign may take.
std::chrono::seconds answer_within() { return told_or("TESSERA_HOST_ANSWERS_S", 15); }

double seconds(steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

std::vector<std::string> arguments_of(char** argv, bool fresh) {
  std::vector<std::string> out;
  for (char** word = argv + 1; *word; ++word)
    if (fresh ||
        !(std::string_view(*word) == "--fresh" || std::string_view(*word).starts_with("--fresh=")))
      out.emplace_back(*word);
  return out;
}

// The first hosts that have room for so many ranks.
std::vector<Host> first_slots(const std::vector<Host>& hosts, int ranks) {
  std::vector<Host> out;
  for (const Host& host : hosts) {
    if (ranks <= 0) break;
    out.push_back({host.name, std::min(host.slots, ranks)});
    ranks -= host.slots;
  }
  return out;
}

std::vector<Host> missing(const std::vector<Host>& all, const std::vector<Host>& here) {
  std::vector<Host> out;
  for (const Host& host : all)
    if (std::find(here.begin(), here.end(), host) == here.end()) out.push_back(host);
  return out;
}

// "node2 does not answer (ranks 4, 5): it is lost or cut off", for each host of a start that is not
// among those found. mpirun fills the slots of one host after the other.
std::vector<std::string> silent_hosts(const std::vector<Host>& started,
                                      const std::vector<Host>& found) {
  std::vector<std::string> out;
  int rank = 0;
  for (const Host& host : started) {
    std::vector<std::string> ranks;
    for (int i = 0; i < host.slots; ++i) ranks.push_back(std::to_string(rank++));
    const auto is_it = [&](const Host& other) { return other.name == host.name; };
    if (std::none_of(found.begin(), found.end(), is_it))
      out.push_back(fmt::format("{} does not answer ({} {}): it is lost or cut off", host.name,
                                ranks.size() == 1 ? "rank" : "ranks", join(ranks, ", ")));
  }
  return out;
}

// A job and what becomes of it.
class Supervisor {
 public:
  Supervisor(const config::Config& config, const std::string& mpirun, char** argv, bool goes_on)
      : config_(config),
        mpirun_(mpirun),
        argv_(argv),
        goes_on_(goes_on),
        restarts_(goes_on ? static_cast<int>(config.run.restarts) : 0),
        all_(hosts_of(config.run.hostfile)),
        here_(all_),
        memory_(restarts_ > 0 && config.checkpoint.memory_every > 0) {}

  int run() {
    choose_ranks();
    for (int restart = 0;;) {
      memory_.last(restart == restarts_);
      const JobEnd end =
          run_job(start(), signals_, [this](std::int64_t step) { return look(step); });
      fresh_ = fresh_ && !end.opened;
      if (!end.error.empty()) say_lines(stderr, "error: " + end.error + "\n");
      const bool failed = end.code == static_cast<int>(ErrorKind::hang) ||
                          end.code == static_cast<int>(ErrorKind::rank_lost),
                 joins = end.code == static_cast<int>(ErrorKind::stopped) && joining_;
      const bool last = !joins && (!failed || restart == restarts_);
      if (failed && last && end.asked == 0) who_answers(steady_clock::now());  // and names the rest
      if (end.asked > 0 || last) return ended(end);
      if (failed) {
        recovery_.failed(++restart, steady_clock::now());
        here_ = who_answers(steady_clock::now() +
                            std::chrono::duration_cast<steady_clock::duration>(
                                std::chrono::duration<double>(config_.run.host_wait_s)));
      } else {
        here_ = all_;
      }
      if (stopping_ || signals_.asked(std::chrono::milliseconds(0))) {
        tell("stopped on request between two starts; the same command goes on");
        return static_cast<int>(ErrorKind::stopped);
      }
      joining_ = false;
      choose_ranks();
      tell_restart(restart, failed);
    }
  }

 private:
  JobStart start() const {
    JobStart out;
    out.mpirun = mpirun_;
    out.arguments = arguments_of(argv_, fresh_);
    out.ranks = static_cast<int>(now_.run.np);
    out.asked = static_cast<int>(config_.run.np);
    out.out = config_.run.out;
    out.crowded = all_.empty() && now_.run.np > available_cores();
    out.goes_on = goes_on_;
    out.hosts = here_.empty() ? here_ : first_slots(here_, out.ranks);
    return out;
  }

  // The layout for the hosts that are here. Without a list mpirun has its own, which nobody asks.
  void choose_ranks() {
    now_ = config_;
    if (all_.empty()) return;
    const std::int64_t ranks = config::fitting_ranks(config_, slots_of(here_));
    if (ranks == 0)
      throw Error(ErrorKind::rank_lost,
                  fmt::format("the hosts that answer have room for {} of {} ranks, and fewer than "
                              "{} cannot go on",
                              slots_of(here_), config_.run.np,
                              std::max(config_.run.np_min, config::ranks_of_a_copy(config_))),
                  "", "the same command goes on from the newest checkpoint when they are back");
    if (ranks < config_.run.np) now_ = config::shrink(config_, ranks);
  }

  // Asks until all have answered or the time is over; of the last start, who does not is named.
  std::vector<Host> who_answers(steady_clock::time_point until) {
    if (all_.size() < 2) return all_;
    const std::vector<Host> started = first_slots(here_, static_cast<int>(now_.run.np));
    std::set<std::string> told;
    for (;;) {
      HostProbe probe(mpirun_, all_, answer_within());
      std::optional<std::vector<Host>> answered;
      while (!(answered = probe.poll()))
        if (signals_.asked(std::chrono::milliseconds(50))) {
          stopping_ = true;
          return here_;
        }
      const std::vector<Host>& found = *answered;
      for (const std::string& line : silent_hosts(started, found))
        if (told.insert(line).second) tell(line);
      if (found.size() == all_.size() || steady_clock::now() >= until) return found;
      if (signals_.asked(std::chrono::seconds(1))) {
        stopping_ = true;
        return found;
      }
    }
  }

  bool look(std::int64_t step) {
    const auto now = steady_clock::now();
    recovery_.moved(step, now);
    if (const std::string text = recovery_.back(); !text.empty()) tell(text);
    return joining_ = joining_ || (step >= 0 && restarts_ > 0 && returned(now));
  }

  // Whether hosts that were lost answer again.
  bool returned(steady_clock::time_point now) {
    const std::vector<Host> lost = missing(all_, here_);
    if (lost.empty()) return false;
    if (!probe_ && now - asked_ > ask_again_after()) {
      probe_ = std::make_unique<HostProbe>(mpirun_, lost, answer_within());
      asked_ = now;
    }
    const auto found = probe_ ? probe_->poll() : std::nullopt;
    if (!found) return false;
    probe_.reset();
    if (found->size() < lost.size()) return false;
    tell(fmt::format("{} {} again: the job saves and goes on with {} ranks", names_of(*found),
                     found->size() == 1 ? "answers" : "answer", config_.run.np));
    return true;
  }

  void tell_restart(int restart, bool failed) {
    const std::vector<Host> lost = missing(all_, here_);
    std::string text = failed ? fmt::format("restart {} of {}: ", restart, restarts_) : "";
    text += fmt::format("from the newest checkpoint, {} of {} ranks", now_.run.np, config_.run.np);
    if (!lost.empty())
      text += fmt::format(", without {}, which {} not answer", names_of(lost),
                          lost.size() == 1 ? "does" : "do");
    const std::string layout = config::shrink_text(now_);
    tell(layout.empty() ? text : text + "; " + layout);
  }

  // On stderr, and in log.txt where a run has one.
  void tell(const std::string& text) const {
    const std::string line = printable_lines(text + "\n");
    say_lines(stderr, line);
    if (std::fstream log(config_.run.out + "/log.txt",
                         std::ios::in | std::ios::out | std::ios::app);
        log)
      log << line;
  }

  int ended(const JobEnd& end) {
    if (end.code == 0)
      if (const std::string text = recovery_.ended(steady_clock::now()); !text.empty()) tell(text);
    if (end.code == 0 && end.deaf)
      throw Error(ErrorKind::disk, "cannot write to stdout: it is closed, or its disk is full", "",
                  "the work of the ranks is done");
    return end.code;
  }

  const StopSignals signals_;
  const config::Config& config_;
  const std::string mpirun_;
  char** argv_;
  const bool goes_on_;
  const int restarts_;
  const std::vector<Host> all_;
  std::vector<Host> here_;
  config::Config now_;
  const MemoryName memory_;
  bool fresh_ = true;  // --fresh still counts
  bool joining_ = false, stopping_ = false;
  Recovery recovery_;
  std::unique_ptr<HostProbe> probe_;
  steady_clock::time_point asked_ = steady_clock::now();
};

}  // namespace

void Recovery::moved(std::int64_t step, Time now) {
  now_ = now;
  if (step < 0) return;
  if (step != step_ || moved_ == Time::min()) {
    step_ = step;
    moved_ = now;
  }
  if (!pending_) return;
  if (from_ < 0) {
    from_ = step;
    began_ = now;
  }
  is_back_ = step >= lost_;
}

void Recovery::failed(int restart, Time now) {
  if (!pending_) {
    lost_ = step_;
    stood_ = moved_ == Time::min() ? now : moved_;
  }
  noticed_ = pending_ ? noticed_ : now;
  pending_ = true;
  is_back_ = false;
  from_ = -1;
  step_ = -1;
  moved_ = Time::min();
  restart_ = restart;
}

std::string Recovery::back() {
  if (!pending_ || !is_back_) return "";
  pending_ = false;
  return text(now_);
}

std::string Recovery::ended(Time now) {
  if (!pending_) return "";
  pending_ = false;
  return text(now);
}

std::string Recovery::text(Time now) const {
  const Time began = from_ < 0 ? now : began_;
  const std::string where = lost_ < 0 ? "the first step" : fmt::format("step {}", lost_);
  std::string out = fmt::format(
      "restart {}: in {} again; lost {:.1f} s: {:.1f} s until the job had ended, {:.1f} s to start",
      restart_, where, seconds(now - stood_), seconds(noticed_ - stood_),
      seconds(began - noticed_));
  if (lost_ >= 0 && from_ >= 0)
    out += fmt::format(", {:.1f} s for the {} step{} since the checkpoint", seconds(now - began),
                       std::max<std::int64_t>(lost_ - from_, 0), lost_ - from_ == 1 ? "" : "s");
  return out;
}

int run_with_restarts(const config::Config& config, const std::string& mpirun, char** argv,
                      bool goes_on) {
  return Supervisor(config, mpirun, argv, goes_on).run();
}

}  // namespace tessera::run
