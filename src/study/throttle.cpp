#include "study/throttle.h"

#include <signal.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/process.h"

namespace tessera::study {
namespace {

constexpr double cycle_s = 0.03;

// Within a job of Slurm all processes have SLURM_PROCID, mpirun and its ranks too: it counts only
// where no rank has another name.
const std::vector<std::string> rank_names[] = {{"OMPI_COMM_WORLD_RANK=", "PMIX_RANK=", "PMI_RANK="},
                                               {"SLURM_PROCID="}};

// The rank that a launcher gave this process under one of these names; -1: none.
int rank_of(int pid, const std::vector<std::string>& names) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  std::string all(std::istreambuf_iterator<char>(file), {});
  for (const std::string& name : names)
    for (std::size_t at = all.find(name); at != all.npos; at = all.find(name, at + 1))
      if (at == 0 || all[at - 1] == '\0') return std::atoi(all.c_str() + at + name.size());
  return -1;
}

}  // namespace

int process_of_rank(int session, int rank) {
  for (const std::vector<std::string>& names : rank_names) {
    bool named = false;
    std::map<int, int> parents;  // of the processes with that rank
    for (const int pid : all_processes()) {
      const ProcessStat s = stat_of(pid);
      if (s.session != session || s.state == 'Z') continue;
      const int found = rank_of(pid, names);
      named |= found >= 0;
      if (found == rank) parents[pid] = s.parent;
    }
    for (const auto& [pid, parent] : parents)
      if (parents.contains(parent)) return pid;
    if (named) return 0;
  }
  return 0;
}

Throttler::Throttler(const Throttle& throttle, int session, std::filesystem::path folder)
    : throttle_(throttle), session_(session), folder_(std::move(folder)) {
  if (throttle_.rank >= 0) thread_ = std::thread([this] { work(); });
}

bool Throttler::end() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  return found_;
}

void Throttler::work() {
  const auto pause = [](double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  };
  int pid = 0;
  std::error_code error;
  while (!stop_ && pid == 0) {
    pause(0.02);
    if (const auto bytes = std::filesystem::file_size(folder_ / "metrics.jsonl", error);
        !error && bytes > 0)
      pid = process_of_rank(session_, throttle_.rank);
  }
  if (pid == 0) return;
  const std::uint64_t started = stat_of(pid).started;
  while (!stop_ && stat_of(pid).started == started) {
    if (::kill(pid, SIGSTOP) != 0) return;
    found_ = true;
    pause(cycle_s * (1 - throttle_.share));
    ::kill(pid, SIGCONT);
    pause(cycle_s * throttle_.share);
  }
}

}  // namespace tessera::study
