#include "measure/peak.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <sstream>
#include <thread>

#include "base/cache_folder.h"
#include "base/process.h"
#include "base/rng.h"
#include "base/threads.h"
#include "comm/heartbeat.h"
#include "config/devices.h"
#include "exec/cpu/peak.h"
#include "exec/device.h"
#include "files/text.h"
#include "measure/environment.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;

constexpr double largest_spread = 0.15;  // of the rounds of one measurement
constexpr double least_share = 0.8;      // of the CPU time that the threads could have had
constexpr int peak_version = 1;          // of how it is measured: others are not taken over

// The numbers of the cores that this process may use, "0 1 5".
std::string usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::string out;
  const bool known = ::sched_getaffinity(0, sizeof(set), &set) == 0;
  for (int i = 0; known && i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) out += std::to_string(i) + " ";
  for (int i = 0; !known && i < available_cores(); ++i) out += std::to_string(i) + " ";
  return out;
}

std::string now_in_utc() {
  return fmt::format(
      "{:%Y-%m-%dT%H:%M:%SZ}",
      fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

fs::path file_of(const PeakKey& key) {
  const fs::path folder = cache_folder();
  if (folder.empty()) return {};
  std::string name = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", peak_version, key.host, key.cpu,
                                 key.ranks, key.threads, key.cores);
  if (key.dtype != "f32") name += "\n" + key.dtype;
  return folder / fmt::format("peak-{:016x}.json", hash_name(name));
}

// A number as JSON has it, or 0 where it is none that a machine could have.
double sound_number(const nlohmann::json& from, const char* key) {
  if (!from.is_object() || !from.contains(key) || !from[key].is_number()) return 0;
  const double value = from[key].get<double>();
  return std::isfinite(value) && value > 0 && value < 1e9 ? value : 0;
}
std::string sound_text(const nlohmann::json& from, const char* key) {
  return from.is_object() && from.contains(key) && from[key].is_string()
             ? from[key].get<std::string>().substr(0, 200)
             : "";
}

// gflops 0: there is none, or nobody can read it.
MachinePeak kept_peak(const fs::path& file) {
  if (file.empty()) return {};
  struct stat info {};
  if (::lstat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != ::geteuid())
    return {};
  try {
    const nlohmann::json kept =
        nlohmann::json::parse(files::read_text(file, 1 << 16), nullptr, false);
    return {sound_number(kept, "gflops"), sound_text(kept, "measured"), sound_text(kept, "doubt")};
  } catch (const Error&) {
    return {};
  }
}

void keep_peak(const fs::path& file, const PeakKey& key, const MachinePeak& peak) {
  if (file.empty()) return;
  try {
    files::write_atomically(file,
                            nlohmann::json{{"host", key.host},
                                           {"cpu", key.cpu},
                                           {"ranks", key.ranks},
                                           {"threads", key.threads},
                                           {"cores", key.cores},
                                           {"dtype", key.dtype},
                                           {"gflops", peak.gflops},
                                           {"measured", peak.measured},
                                           {"doubt", peak.doubt}}
                                    .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
                                "\n");
  } catch (const Error&) {  // a home that cannot be written: measured anew the next time
  }
}

// The peak that this run used before on such a machine.
MachinePeak peak_of_segments(const nlohmann::json& segments, const PeakKey& key) {
  MachinePeak out;
  if (!segments.is_array()) return out;
  const auto dtype_of = [](const nlohmann::json& s) {  // older segments do not name it
    const std::string said = sound_text(s, "peak_dtype");
    return said.empty() ? "f32" : said;
  };
  for (const nlohmann::json& s : segments)
    if (dtype_of(s) == key.dtype && sound_text(s, "host") == key.host &&
        sound_text(s, "cpu") == key.cpu && sound_number(s, "ranks_here") == key.ranks &&
        sound_number(s, "threads") == key.threads && sound_number(s, "cores") == key.cores)
      out = {sound_number(s, "peak_gflops") * key.ranks, sound_text(s, "measured"),
             sound_text(s, "doubt")};
  return out;
}

}  // namespace

PeakKey peak_key(const Ranks& ranks, int threads, const std::string& dtype) {
  PeakKey key{.host = host_name(),
              .cpu = cpu_name(),
              .ranks = 0,
              .threads = threads,
              .cores = 0,
              .dtype = std::string(exec::cpu::multiplied_in(dtype))};
  std::set<int> cores;
  for (const std::string& text : ranks.gather_text(key.host + "\n" + usable_cores())) {
    const std::size_t end = text.find('\n');
    if (text.substr(0, end) != key.host) continue;
    ++key.ranks;
    std::istringstream numbers(text.substr(end + 1));
    for (int n; numbers >> n;) cores.insert(n);
  }
  key.cores = std::max(1, static_cast<int>(cores.size()));
  return key;
}

MachinePeak judge_peak(const std::vector<exec::MeasuredPeak>& ranks, const PeakKey& key) {
  MachinePeak out;
  out.measured = now_in_utc();
  double wall = 0, spread = 0;
  for (const exec::MeasuredPeak& rank : ranks) {
    out.gflops += rank.gflops;
    wall += rank.wall_gflops;
    spread = std::max(spread, rank.spread);
  }
  const int threads = key.ranks * key.threads;
  if (threads > key.cores) out.gflops *= static_cast<double>(key.cores) / threads;
  if (wall < least_share * out.gflops)
    out.doubt =
        fmt::format("the machine was busy: its threads had {:.0f}% of the time that they could use",
                    wall / out.gflops * 100);
  else if (spread > largest_spread)
    out.doubt = fmt::format("the rounds of the measurement differ by {:.0f}%", spread * 100);
  return out;
}

std::string multiplies_in(const config::Config& config) {
  const bool bytes = config.precision.quantise == "int8" && config.run.device == "cpu";
  return bytes ? "int8" : config.precision.dtype;
}

Peak peak_of(const Ranks& ranks, int threads, const nlohmann::json& before,
             const std::string& dtype) {
  const PeakKey key = peak_key(ranks, threads, dtype);
  // The first rank of each machine looks, and keeps the lock until what was measured is written.
  int leader = ranks.rank();
  const std::vector<std::string> hosts = ranks.gather_text(key.host);
  for (std::size_t r = hosts.size(); r-- > 0;)
    if (hosts[r] == key.host) leader = static_cast<int>(r);
  const bool leads = leader == ranks.rank();
  const fs::path file = leads ? file_of(key) : fs::path();
  const CacheLock lock(file);
  MachinePeak found;
  const MachinePeak earlier = leads ? peak_of_segments(before, key) : MachinePeak{},
                    kept = leads ? kept_peak(file) : MachinePeak{};
  if (earlier.gflops > 0)
    found = earlier;
  else if (kept.gflops > 0 && kept.doubt.empty())
    found = kept;
  const std::vector<double> known = ranks.gather({&found.gflops, 1});
  if (std::any_of(known.begin(), known.end(), [](double gflops) { return gflops <= 0; })) {
    ranks.barrier();  // all at once: they may share cores and a clock
    const exec::MeasuredPeak mine = exec::device_info("cpu", threads).peak_gflops(key.dtype);
    const double row[] = {mine.gflops, mine.wall_gflops, mine.spread};
    const std::vector<double> all = ranks.gather(row);
    std::vector<exec::MeasuredPeak> here;
    for (std::size_t r = 0; r < hosts.size(); ++r)
      if (hosts[r] == key.host) here.push_back({all[r * 3], all[r * 3 + 1], all[r * 3 + 2]});
    if (leads && found.gflops <= 0) {
      found = judge_peak(here, key);
      // One that was in doubt gives way to a sound one, or to a higher one.
      if (kept.gflops > found.gflops && !found.doubt.empty()) found = kept;
      keep_peak(file, key, found);
    }
  }
  Peak out;
  out.threads = key.ranks * key.threads;
  out.cores = key.cores;
  out.dtype = key.dtype;
  const std::vector<double> leaders = ranks.gather({&found.gflops, 1});
  for (const double gflops : leaders) out.all_gflops += gflops;  // 0 where a rank leads no machine
  out.gflops = leaders[static_cast<std::size_t>(leader)] / key.ranks;
  const std::vector<std::string> when = ranks.gather_text(found.measured),
                                 doubts = ranks.gather_text(found.doubt);
  out.measured = when[static_cast<std::size_t>(leader)];
  out.doubt = doubts[static_cast<std::size_t>(leader)];
  const std::string crowded =
      out.threads > out.cores
          ? fmt::format("{} threads share {} cores: the peak is that of the cores", out.threads,
                        out.cores)
          : "";
  if (out.doubt.find(crowded) == out.doubt.npos)
    out.doubt += (out.doubt.empty() ? "" : "; ") + crowded;
  return out;
}

namespace {

// One rank after the other, so that those that share cores or a card do not take them from each
// other.
Peak peak_in_turn(const std::string& devices, const std::string& dtype, const Ranks& ranks,
                  int threads) {
  const std::vector<std::string> words = config::listed_devices(devices);
  const std::string& own = words[static_cast<std::size_t>(ranks.rank()) % words.size()];
  const PeakKey key = peak_key(ranks, threads);
  Peak out;
  for (int r = 0; r < ranks.size(); ++r)
    ranks.together([&] {
      if (r == ranks.rank()) out.gflops = exec::device_info(own, threads).peak_gflops(dtype).gflops;
    });
  out.all_gflops = ranks.total(out.gflops);
  out.threads = key.ranks * key.threads;
  out.cores = key.cores;
  out.measured = now_in_utc();
  out.dtype = dtype;
  return out;
}

}  // namespace

Peak peak_on(const std::string& device, const std::string& dtype, const Ranks& ranks, int threads,
             const nlohmann::json& before) {
  if (device.find(',') != device.npos) return peak_in_turn(device, dtype, ranks, threads);
  if (device == "cpu") return peak_of(ranks, threads, before, dtype);
  const PeakKey key = peak_key(ranks, threads);
  const std::vector<std::string> hosts = ranks.gather_text(key.host);
  const bool leads =
      static_cast<std::size_t>(ranks.rank()) ==
      static_cast<std::size_t>(std::find(hosts.begin(), hosts.end(), key.host) - hosts.begin());
  double machine = 0;  // one rank of each measures, alone
  ranks.together([&] {
    if (!leads) return;
    const exec::DeviceInfo info = exec::device_info(device, threads);
    machine = info.peak_gflops(dtype).gflops * std::min(info.count(), key.ranks);
  });
  Peak out;
  out.threads = key.ranks * key.threads;
  out.cores = key.cores;
  out.measured = now_in_utc();
  out.dtype = dtype;
  const std::vector<double> machines = ranks.gather({&machine, 1});
  for (std::size_t r = 0; r < machines.size(); ++r) {
    out.all_gflops += machines[r];
    if (hosts[r] == key.host) out.gflops += machines[r] / key.ranks;
  }
  return out;
}

void measure_cards(const config::Config& config, const Ranks& ranks) {
  const std::string device = config::in_short(config);
  if (device == "cpu") return;
  comm::Heartbeat::doing("measuring the card");
  peak_on(device, multiplies_in(config), ranks, static_cast<int>(config.run.threads));
}

}  // namespace tessera::run
