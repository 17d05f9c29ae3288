#include "ranks/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "base/as_error.h"
#include "base/check.h"
#include "base/process.h"  // defines: find_mpirun
#include "base/say.h"
#include "base/threads.h"
#include "comm/choose.h"
#include "config/devices.h"
#include "config/shrink.h"
#include "exec/device.h"
#include "ranks/carrier.h"
#include "ranks/disk_calls.h"
#include "ranks/guard.h"
#include "ranks/heartbeat_folder.h"
#include "ranks/hosts.h"
#include "ranks/placement.h"
#include "ranks/ranks.h"
#include "ranks/restart.h"
#include "ranks/supervise.h"
#include "ranks/watchdog.h"

namespace tessera::run {
namespace {

std::string ranks_talk;

Watchdog::Options options_of(const config::Config& config, int rank, int ranks) {
  return {.rank = rank,
          .ranks = ranks,
          .hang_s = config.parallel.hang_s,
          .disk_s = config.parallel.disk_s,
          .log = config.run.out + "/log.txt",
          .tell = {}};
}

void tell_how(const std::string& ranks, const Carriage& cards) {
  tell_how_ranks_talk(cards.text.empty() ? ranks : ranks + "; from card to card: " + cards.text);
}

// One MPI rank: what only this rank knows of ends the others too.
int as_mpi_rank(const config::Config& config, const std::function<int(comm::Comm*)>& body) {
  const comm::Launch launch = comm::mpi_launch();
  Watchdog::Options options = options_of(config, launch.rank, launch.size);
  static Guard guard(launch.rank, config.parallel.hang_s, options.log);
  options.tell = [](const HeartbeatFolder& folder) { guard.tell(folder); };
  comm::Heartbeat& heartbeat = guard.heartbeat();
  const comm::Heartbeat::Here here(&heartbeat);
  HeartbeatDisk disk(heartbeat);
  const files::DiskObserver::Here told(&disk);
  comm::Heartbeat::doing(joining_text);
  // It is never destroyed: leaving MPI is the last thing that this process does with others.
  Watchdog* const watchdog = new Watchdog(heartbeat, std::move(options), given_folder());
  const auto ends = [] { given_folder().leave(HeartbeatFolder::Sign::ended); };
  const auto joined = [] {
    guard.joined();
    comm::Heartbeat::doing("starting");
  };
  if (launch.size == 1) {  // of a launcher of ours alone: others leave it to be no rank at all
    joined();
    try {
      const int code = body(nullptr);
      ends();
      watchdog->done();
      return code;
    } catch (const std::exception&) {
      ends();
      throw;
    }
  }
  comm::Choice choice;
  choice.algorithm = comm::algorithm_named(config.parallel.all_reduce);
  choice.across.ring.wire = comm::wire_named(config.parallel.wire);
  const std::unique_ptr<comm::Comm> world = comm::choose(comm::make_mpi(), choice);
  joined();
  world->watch(&heartbeat, "world");
  const auto leave = [&] {  // waits for all, as a barrier does
    ends();
    comm::Heartbeat::doing("leaving the other ranks");
    heartbeat.wait(0, comm::Verb::barrier, heartbeat.enter(0, comm::Verb::barrier), "");
    watchdog->done();
  };
  std::string reason;
  int code = 0;
  try {
    check_devices(config, world.get());
    const std::string placed = place_ranks(config.run.place, *world);
    tell_how(world->describe() + "; " + placed, agree_on_carrier(config, world.get()));
    code = body(world.get());
    leave();
    return code;
  } catch (const AgreedError&) {
    leave();
    throw;
  } catch (const Error& error) {
    // The process whose guard saw a rank end says so, and that ends us.
    if (error.kind == ErrorKind::rank_lost) std::this_thread::sleep_for(std::chrono::seconds(2));
    if (error.kind != ErrorKind::rank_lost) ends();
    reason = std::string("error: ") + error.what();
    code = error.exit_code();
  } catch (const std::exception& thrown) {
    const Error error = as_error(thrown);
    ends();
    reason = std::string("error: ") + error.what();
    code = error.exit_code();
  }
  world->abort(reason, tell_launcher(code));
  return code;
}

// A rank of this process.
int watched(const config::Config& config, int rank, int ranks, const std::function<int()>& body) {
  comm::Heartbeat heartbeat;
  const comm::Heartbeat::Here here(&heartbeat);
  HeartbeatDisk disk(heartbeat);
  const files::DiskObserver::Here told(&disk);
  const Watchdog watchdog(heartbeat, options_of(config, rank, ranks));
  return body();
}

// A batch system that we do not read ourselves, or a default of mpirun's, may have named other
// machines; how many ranks they have room for is theirs to say.
bool mpirun_has_hosts() {
  for (const char* name : {"PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "LSB_HOSTS", "PE_HOSTFILE",
                           "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"})
    if (std::getenv(name)) return true;
  return false;
}

// Ranks of this machine that have more threads than it has cores wait for each other, so they must
// be asked for. Slots of a list of hosts count as asked for; ranks on cards mostly wait for those.
void check_cores(const config::Config& config, bool threads_of_one_process) {
  const std::int64_t ranks = config.run.np, threads = config.run.threads, cores = available_cores();
  if (ranks * threads <= cores) return;
  if (!threads_of_one_process && (!hosts_of(config.run.hostfile).empty() || mpirun_has_hosts()))
    return;
  const std::string found = fmt::format("{} ranks x {} thread{} on {} core{}", ranks, threads,
                                        threads == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
  const std::vector<std::string> devices = config::devices_of(config);
  const bool on_cards = std::find(devices.begin(), devices.end(), "cpu") == devices.end();
  if (config.run.oversubscribe || mpirun_may_oversubscribe() || on_cards) {
    say(stderr, "warning: {}: expect them to wait for each other\n", found);
    return;
  }
  throw Error(ErrorKind::usage, found + ": they would wait for each other", "",
              ranks <= cores
                  ? fmt::format("--threads {} gives each rank cores of its own; --oversubscribe "
                                "starts them as they are",
                                cores / ranks)
                  : fmt::format("--oversubscribe starts them all the same; {} would fit", cores));
}

}  // namespace

void tell_how_ranks_talk(const std::string& how) { ranks_talk = how; }
const std::string& how_ranks_talk() { return ranks_talk; }

int launched_ranks() { return comm::mpi_launch().size; }
int launched_rank() { return comm::mpi_launch().rank; }

int asked_ranks() {
  const char* told = std::getenv(ranks_variable);
  if (told && std::atoi(told) > 0) return std::atoi(told);
  return launched_ranks() > 1 ? launched_ranks() : 0;
}

config::Config as_launched(config::Config config) {
  return std::getenv(ranks_variable) && launched_ranks() < config.run.np
             ? config::shrink(config, launched_ranks())
             : config;
}

// A guard or the launcher itself says why a rank is lost, not another rank.
int tell_launcher(int code) {
  try {
    if (code != static_cast<int>(ErrorKind::rank_lost)) given_folder().leave_code(code);
  } catch (const std::exception&) {  // no memory: the word of mpirun has to do
  }
  return code;
}

bool prints_to_terminal() {
  const char* told = std::getenv(terminal_variable);
  if (launched_ranks() == 1 && !told) return ::isatty(STDOUT_FILENO);
  return told && std::string_view(told) == "1";
}

// Ranks that this program started have the variable.
bool says_notes() { return launched_rank() == 0 && !std::getenv(terminal_variable); }

int on_ranks(const config::Config& config, char** argv, const std::function<int(comm::Comm*)>& body,
             bool goes_on) {
  for (const std::string& device : config::devices_of(config))
    exec::device_info(device, 1);  // Error(usage) where this build has no such device
  const int ranks = static_cast<int>(config.run.np);
  if (launched_ranks() > 1) {
    if (config.parallel.comm == "local")
      throw Error(ErrorKind::usage,
                  fmt::format("parallel.comm = \"local\" means threads of one process, but {} "
                              "processes were started",
                              launched_ranks()),
                  "", "leave parallel.comm out under mpirun and srun");
    return as_mpi_rank(config, body);
  }
  if (given_folder()) return as_mpi_rank(config, body);  // the one rank of a launcher of ours
  const bool restarts = goes_on && config.run.restarts > 0;
  if (ranks == 1 && !restarts) return watched(config, 0, 1, [&] { return body(nullptr); });
  const std::string mpirun = config.parallel.comm == "local" ? "" : find_mpirun();
  if (ranks > 1) check_cores(config, mpirun.empty() || !comm::mpi_built());
  if (config.parallel.comm == "mpi" && (mpirun.empty() || !comm::mpi_built()))
    throw Error(ErrorKind::usage,
                mpirun.empty() ? "parallel.comm = \"mpi\", but there is no mpirun in PATH"
                               : "parallel.comm = \"mpi\", but this build has no MPI",
                "",
                "./setup installs Open MPI; --comm local starts ranks as threads of one process");
  check_cards_before_launch(config, ranks);
  if (!mpirun.empty() && comm::mpi_built()) return run_with_restarts(config, mpirun, argv, goes_on);
  if (restarts)
    throw Error(ErrorKind::usage,
                "run.restarts needs ranks that are processes, but they are threads of this one", "",
                "leave out --comm local; ./setup installs Open MPI");
  std::atomic<int> code = 0;
  comm::run_local(ranks, [&](comm::Comm& world) {
    const int mine = watched(config, world.rank(), ranks, [&] {
      world.watch(comm::Heartbeat::here(), "world");
      check_devices(config, &world);
      const Carriage cards = agree_on_carrier(config, &world);
      if (world.rank() == 0) tell_how("local (threads of one process)", cards);
      world.barrier();
      return body(&world);
    });
    if (world.rank() == 0) code = mine;
  });
  return code;
}

int on_each_host(const config::Config& config, char** argv,
                 const std::function<int(comm::Comm* world)>& body) {
  if (launched_ranks() > 1 || given_folder()) return as_mpi_rank(config, body);
  JobStart start;
  start.mpirun = find_mpirun();
  if (start.mpirun.empty() || !comm::mpi_built())
    throw Error(ErrorKind::usage,
                comm::mpi_built() ? "there is no mpirun in PATH" : "this build has no MPI", "",
                "./setup installs Open MPI");
  std::vector<Host> hosts = hosts_of(config.run.hostfile);
  for (Host& host : hosts) host.slots = 1;
  if (!hosts.empty()) {
    prepare_for_mpirun(false);
    start.hosts = HostProbe(start.mpirun, hosts, std::chrono::seconds(20)).wait();
    std::string silent;
    for (const Host& host : hosts)
      if (std::find(start.hosts.begin(), start.hosts.end(), host) == start.hosts.end())
        silent += host.name + " ";
    ::setenv(silent_hosts_variable, silent.c_str(), 1);
    if (start.hosts.empty())
      throw Error(ErrorKind::rank_lost, "no host answers: " + silent, config.run.hostfile,
                  "`mpirun --host NAME true` must start a process there");
  }
  for (char** word = argv + 1; *word; ++word) start.arguments.emplace_back(*word);
  start.ranks =
      hosts.empty() ? static_cast<int>(config.run.np) : static_cast<int>(start.hosts.size());
  start.asked = start.ranks;
  start.out = config.run.out;
  start.crowded = hosts.empty() && start.ranks > available_cores();
  const JobEnd end = run_job(start, StopSignals(), [](std::int64_t) { return false; });
  if (!end.error.empty()) say_lines(stderr, "error: " + end.error + "\n");
  return end.code;
}

}  // namespace tessera::run
