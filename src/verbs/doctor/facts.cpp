// The facts that one host says of itself.
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/build_info.h"
#include "base/process.h"
#include "base/threads.h"
#include "comm/mpi_own.h"
#include "comm/node.h"
#include "exec/device.h"
#include "files/disk.h"
#include "files/hash.h"
#include "ranks/clocks.h"
#include "ranks/placement.h"
#include "verbs/doctor/doctor.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t written = 32 << 20;  // bytes, to see how fast the disk of the run folder is

std::string hash_of_program() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  files::Xxh3 hash;
  std::vector<char> piece(1 << 20);
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0)
    hash.add(std::string_view(piece.data(), static_cast<std::size_t>(file.gcount())));
  return files::hash_text(hash.value());
}

// "0-3,8": the cores that this process may use, and how many they are.
std::string cores_bound(int& count) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::string out;
  count = 0;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return out;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &set)) continue;
    int last = core;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) ++last;
    out += (out.empty() ? "" : ",") +
           (last == core ? std::to_string(core) : fmt::format("{}-{}", core, last));
    count += last - core + 1;
    core = last;
  }
  return out;
}

// The cores of each node: what ranks are placed on, one after the other (run.place).
std::vector<std::string> numa_nodes() {
  const std::vector<Cpu> cpus = own_cpus();
  std::set<int> nodes;
  for (const Cpu& cpu : cpus) nodes.insert(cpu.node);
  std::vector<std::string> out;
  for (const std::vector<int>& share : share_out(cpus, static_cast<int>(nodes.size()), false))
    out.push_back(cpu_list(share));
  return out;
}

void look_at_memory(HostFacts& facts) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    const double gb = 1024e-9 * std::atof(line.substr(line.find(':') + 1).c_str());
    if (line.starts_with("MemTotal:")) facts.memory_gb = gb;
    if (line.starts_with("MemAvailable:")) facts.memory_free_gb = gb;
  }
}

// How fast a file of ours comes to the disk of the folder; 0: it cannot be written.
double disk_mb_s(const fs::path& folder, int rank) {
  const fs::path path = folder / fmt::format(".doctor-{}-{}-{}", host_name(), ::getpid(), rank);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return 0;
  const std::vector<char> piece(1 << 20, 'x');
  const auto start = std::chrono::steady_clock::now();
  bool whole = true;
  for (std::size_t done = 0; whole && done < written; done += piece.size())
    whole = ::write(file, piece.data(), piece.size()) == static_cast<ssize_t>(piece.size());
  whole = ::fsync(file) == 0 && whole;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ::close(file);
  ::unlink(path.c_str());
  return whole ? 1e-6 * static_cast<double>(written) / seconds : 0;
}

// Whether each host sees what the first one writes in the folder.
bool sees_folder(const Ranks& ranks, const fs::path& folder) {
  const std::string token = fmt::format(".doctor-{}-{}", host_name(), ::getpid());
  const std::string name = ranks.gather_text(token)[0];
  if (ranks.first()) std::ofstream(folder / name) << name << "\n";
  ranks.barrier();
  std::ifstream file(folder / name);
  std::string found;
  std::getline(file, found);
  ranks.barrier();
  std::error_code ignored;
  if (ranks.first()) fs::remove(folder / name, ignored);
  return found == name;
}

// Wall clocks, against the one clock that all ranks share (clocks.h).
void look_at_clock(const Ranks& ranks, HostFacts& facts) {
  const Clock steady = compare_clocks(ranks);
  const double wall = std::chrono::duration<double>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count(),
               shared = 1e-9 * static_cast<double>(steady_ns() + steady.behind_ns);
  const double mine[] = {wall - shared};
  const std::vector<double> all = ranks.gather(mine);
  facts.clock_s = mine[0] - all[0];
  facts.clock_off_s = 1e-9 * static_cast<double>(steady.uncertain_ns);
}

}  // namespace

nlohmann::ordered_json to_json(const HostFacts& f) {
  nlohmann::ordered_json interfaces = nlohmann::ordered_json::array();
  for (const Interface& i : f.interfaces)
    interfaces.push_back(
        {{"name", i.name}, {"address", i.address}, {"mbit", i.mbit}, {"mpi", i.mpi}});
  return {{"host", f.host},
          {"machine", f.machine},
          {"tessera", f.tessera},
          {"binary", f.binary},
          {"mpi", f.mpi},
          {"clock_s", f.clock_s},
          {"clock_off_s", f.clock_off_s},
          {"cores", f.cores},
          {"bound", f.bound},
          {"cores_bound", f.cores_bound},
          {"numa", f.numa},
          {"load", f.load},
          {"memory_gb", f.memory_gb},
          {"memory_free_gb", f.memory_free_gb},
          {"disk_free_gb", f.disk_free_gb},
          {"disk_mb_s", f.disk_mb_s},
          {"sees_folder", f.sees_folder},
          {"gflops", f.gflops},
          {"devices", f.devices},
          {"interfaces", interfaces}};
}

HostFacts facts_from(const nlohmann::json& j) {
  HostFacts f;
  f.host = j.at("host");
  f.machine = j.at("machine");
  f.tessera = j.at("tessera");
  f.binary = j.at("binary");
  f.mpi = j.at("mpi");
  f.clock_s = j.at("clock_s");
  f.clock_off_s = j.at("clock_off_s");
  f.cores = j.at("cores");
  f.bound = j.at("bound");
  f.cores_bound = j.at("cores_bound");
  f.load = j.at("load");
  f.memory_gb = j.at("memory_gb");
  f.memory_free_gb = j.at("memory_free_gb");
  f.disk_free_gb = j.at("disk_free_gb");
  f.disk_mb_s = j.at("disk_mb_s");
  f.sees_folder = j.at("sees_folder");
  f.gflops = j.at("gflops");
  f.numa = j.value("numa", std::vector<std::string>{});  // older versions send none
  f.devices = j.at("devices").get<std::vector<std::string>>();
  for (const auto& i : j.at("interfaces"))
    f.interfaces.push_back({.name = i.at("name"),
                            .address = i.at("address"),
                            .mbit = i.at("mbit"),
                            .mpi = i.value("mpi", true)});  // as above
  return f;
}

std::vector<HostFacts> gather_facts(const Ranks& ranks, const std::string& folder) {
  HostFacts facts;
  double load[1] = {0};
  if (::getloadavg(load, 1) == 1) facts.load = load[0];
  facts.host = host_name();
  facts.machine = comm::machine_name();
  facts.tessera = version();
  facts.binary = hash_of_program();
  facts.mpi = comm::mpi_version();
  facts.cores = ::get_nprocs();
  facts.cores_bound = cores_bound(facts.bound);
  facts.numa = numa_nodes();
  look_at_memory(facts);
  facts.interfaces = interfaces_here(facts.mpi);
  for (const auto& [name, value] : exec::device_facts())
    facts.devices.push_back(name + ": " + value);
  facts.disk_free_gb = 1e-9 * static_cast<double>(files::free_bytes(folder).value_or(0));
  look_at_clock(ranks, facts);
  facts.sees_folder = sees_folder(ranks, folder);
  for (int turn = 0; turn < ranks.size(); ++turn) {  // nobody disturbs another
    ranks.barrier();
    if (turn != ranks.rank()) continue;
    // Twice, and the better: what a disk was still busy with is nobody's fault.
    for (int time = 0; time < 2; ++time)
      facts.disk_mb_s = std::max(facts.disk_mb_s, disk_mb_s(folder, turn));
    const int threads = available_cores();
    facts.gflops = exec::device_info("cpu", threads).peak_gflops("f32").gflops;
  }
  ranks.barrier();
  std::vector<HostFacts> out;
  for (const std::string& text : ranks.gather_text(
           to_json(facts).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)))
    out.push_back(facts_from(nlohmann::json::parse(text)));
  return out;
}

}  // namespace tessera::run
