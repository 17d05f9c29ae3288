// The verdict on a cluster, from what its hosts said.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/check.h"
#include "verbs/doctor/doctor.h"

namespace tessera::run {
namespace {

constexpr double slow_host = 0.7;     // of the median of the others: the cores of a host
constexpr double slow_disk = 0.33;    // likewise: the disk as seen from a host
constexpr double most_clock_s = 1.0;  // that clocks may be apart
constexpr double least_disk_gb = 1.0;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

bool is_busy(const HostFacts& host) { return host.load > 0.5 * host.cores; }

class Judge {
 public:
  Judge(const std::vector<HostFacts>& hosts, const Links& links) : hosts_(hosts), links_(links) {}

  std::vector<DoctorFinding> run(const std::vector<std::string>& silent) {
    if (!silent.empty())
      problem(fmt::format("{} did not answer", join(silent, ", ")),
              "`mpirun --host NAME true` must start a process there (ssh without a password, the "
              "same MPI in the same place)");
    same("tessera", "the same version everywhere", [](const HostFacts& h) { return h.tessera; });
    same("program", "copy one build to all hosts, or put it on a shared disk",
         [](const HostFacts& h) { return h.binary; });
    same("MPI", "the same MPI library everywhere", [](const HostFacts& h) { return h.mpi; });
    clocks();
    folder();
    machines();
    pinning();
    network();
    slow_links();
    return std::move(found_);
  }

 private:
  void problem(std::string text, std::string advice) {
    found_.push_back({true, std::move(text), std::move(advice)});
  }
  void note(std::string text, std::string advice) {
    found_.push_back({false, std::move(text), std::move(advice)});
  }
  // A busy host may be slow because of its other work, which is no reason for a script to stop.
  void slower(const HostFacts& host, const std::string& text, std::string advice) {
    if (is_busy(host))
      note(text + "; it is busy", "measure again when it is idle");
    else
      problem(text, std::move(advice));
  }

  // The value that most hosts have is taken for the right one.
  void same(const char* what, const char* advice,
            const std::function<std::string(const HostFacts&)>& value) {
    std::map<std::string, std::vector<std::string>> by_value;
    for (const HostFacts& h : hosts_) by_value[value(h)].push_back(h.host);
    if (by_value.size() < 2) return;
    const auto most = std::max_element(
        by_value.begin(), by_value.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    for (const auto& [text, names] : by_value)
      if (text != most->first)
        problem(fmt::format("{} has another {} than {}: {}, not {}", join(names, ", "), what,
                            join(most->second, ", "), text, most->first),
                advice);
  }

  void clocks() {
    for (const HostFacts& h : hosts_)
      if (std::abs(h.clock_s) > most_clock_s + h.clock_off_s)
        problem(
            fmt::format("the clock of {} is {:.1f} s {} that of {}", h.host, std::abs(h.clock_s),
                        h.clock_s > 0 ? "ahead of" : "behind", hosts_[0].host),
            "let chrony or ntpd set it: times in logs and of files would contradict each other");
  }

  void folder() {
    std::vector<double> speeds;
    for (const HostFacts& h : hosts_) speeds.push_back(h.disk_mb_s);
    for (const HostFacts& h : hosts_) {
      if (!h.sees_folder)
        problem(
            fmt::format("{} does not see what {} writes in the run folder", h.host, hosts_[0].host),
            "--out must be on a disk that all hosts share: checkpoints and heartbeats are there");
      if (h.disk_free_gb < least_disk_gb)
        problem(fmt::format("the run folder has {:.2f} GB of room on {}", h.disk_free_gb, h.host),
                "choose another --out, or make room");
      if (hosts_.size() > 2 && h.disk_mb_s < slow_disk * median(speeds))
        slower(h,
               fmt::format("{} writes {:.0f} MB/s to the run folder, the others {:.0f}", h.host,
                           h.disk_mb_s, median(speeds)),
               "its mount or its network is slower; every checkpoint waits for the slowest");
    }
  }

  void machines() {
    std::vector<double> speeds;
    std::set<std::string> devices;
    for (const HostFacts& h : hosts_) {
      speeds.push_back(h.gflops);
      devices.insert(join(h.devices, "; "));
    }
    for (const HostFacts& h : hosts_) {
      if (hosts_.size() > 2 && h.gflops < slow_host * median(speeds))
        slower(h,
               fmt::format("the cores of {} do {:.0f} GFLOP/s, those of the others {:.0f}", h.host,
                           h.gflops, median(speeds)),
               "leave it out, or give it less: parallel.weights = \"measured\"");
      if (is_busy(h))
        note(fmt::format("{} is busy: a load of {:.1f} on {} cores", h.host, h.load, h.cores),
             "other work slows every step down");
      if (h.memory_free_gb < 0.1 * h.memory_gb)
        note(fmt::format("{} has {:.1f} of {:.1f} GB of memory left", h.host, h.memory_free_gb,
                         h.memory_gb),
             "`tessera explain` shows what a rank needs");
    }
    if (devices.size() > 1)
      note("hosts have different devices or drivers", "the table lists those of each host");
  }

  // Ranks of one machine that were bound to the same cores wait for each other.
  void pinning() {
    std::map<std::string, std::vector<const HostFacts*>> by_machine;
    for (const HostFacts& h : hosts_) by_machine[h.machine].push_back(&h);
    for (const auto& [machine, ranks] : by_machine)
      for (std::size_t i = 1; i < ranks.size(); ++i)
        if (ranks[i]->bound < ranks[i]->cores && ranks[i]->cores_bound == ranks[0]->cores_bound) {
          problem(fmt::format("ranks of {} are bound to the same cores: {}", ranks[0]->host,
                              ranks[0]->cores_bound),
                  "OMPI_MCA_hwloc_base_binding_policy=none, or srun --cpus-per-task");
          break;
        }
    for (const HostFacts& h : hosts_)
      if (h.bound < h.cores && by_machine[h.machine].size() == 1)
        note(fmt::format("{} may use {} of its {} cores ({})", h.host, h.bound, h.cores,
                         h.cores_bound),
             "a control group or a binding says so; srun --cpus-per-task gives more");
  }

  void network() {
    std::set<std::string> machines;
    for (const HostFacts& h : hosts_) machines.insert(h.machine);
    if (machines.size() < 2) return;
    for (const HostFacts& h : hosts_) {
      std::vector<std::string> names, taken;
      for (const Interface& i : h.interfaces) {
        names.push_back(i.name);
        if (i.mpi) taken.push_back(i.name);
      }
      if (names.empty())
        problem(fmt::format("{} has no network interface but the loopback", h.host),
                "connect it to the network of the others");
      else if (taken.empty())
        problem(
            fmt::format("MPI would take no network of {}: it has {}", h.host, join(names, ", ")),
            "OMPI_MCA_btl_tcp_if_include or _exclude (Open MPI) or HYDRA_IFACE (MPICH) says so");
      if (taken.size() > 1)
        note(fmt::format("{} has several networks: {}", h.host, join(taken, ", ")),
             "MPI tries all of them; OMPI_MCA_btl_tcp_if_include=NAME (Open MPI) or "
             "HYDRA_IFACE=NAME (MPICH) names the one to take");
    }
  }

  bool between_machines(const Link& link) const {
    return hosts_[static_cast<std::size_t>(link.from)].machine !=
           hosts_[static_cast<std::size_t>(link.to)].machine;
  }

  bool busy(int host) const { return is_busy(hosts_[static_cast<std::size_t>(host)]); }

  void slow_links() {
    std::vector<Link> across;
    std::vector<double> latencies;
    for (const Link& link : links_.pairs)
      if (between_machines(link)) {
        across.push_back(link);
        latencies.push_back(link.latency_us);
      }
    if (across.size() < 3) return;  // none to compare with
    const double usual = usual_gbyte_s(across), usual_us = median(latencies);
    std::map<int, std::vector<const Link*>> of_host;
    std::map<int, int> all_of_host;
    std::vector<const Link*> bad;
    for (const Link& link : links_.pairs) {
      if (!between_machines(link)) continue;
      ++all_of_host[link.from];
      ++all_of_host[link.to];
      // On busy cores a message waits for its reader's turn, whatever the network does.
      const bool late = link.latency_us > 10 * usual_us && !busy(link.from) && !busy(link.to);
      if (link.gbyte_s >= slow_link * usual && !late) continue;
      bad.push_back(&link);
      of_host[link.from].push_back(&link);
      of_host[link.to].push_back(&link);
    }
    std::set<int> blamed;
    for (const auto& [host, links] : of_host) {
      if (static_cast<int>(links.size()) < all_of_host[host] || links.size() < 2) continue;
      blamed.insert(host);
      double best = 0;
      for (const Link* link : links) best = std::max(best, link->gbyte_s);
      problem(fmt::format("every link of {} is slow: at most {:.3f} GB/s, where others have {:.3f}",
                          hosts_[static_cast<std::size_t>(host)].host, best, usual),
              "its cable, port or interface; without it the others do not wait");
    }
    for (const Link* link : bad)
      if (!blamed.contains(link->from) && !blamed.contains(link->to))
        problem(fmt::format("the link between {} and {} is slow: {:.3f} GB/s and {:.0f} us, where "
                            "others have {:.3f} GB/s and {:.0f} us",
                            hosts_[static_cast<std::size_t>(link->from)].host,
                            hosts_[static_cast<std::size_t>(link->to)].host, link->gbyte_s,
                            link->latency_us, usual, usual_us),
                "the way between the two: a switch, a cable, a route");
  }

  const std::vector<HostFacts>& hosts_;
  const Links& links_;
  std::vector<DoctorFinding> found_;
};

}  // namespace

std::vector<DoctorFinding> judge_hosts(const std::vector<HostFacts>& hosts, const Links& links,
                                       const std::vector<std::string>& silent) {
  return Judge(hosts, links).run(silent);
}

}  // namespace tessera::run
