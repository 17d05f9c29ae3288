#include "measure/environment.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <thread>

#include "base/build_info.h"
#include "base/process.h"
#include "base/threads.h"
#include "exec/device.h"
#include "ranks/launch.h"

namespace tessera::run {
namespace {

std::optional<Peak> told_peak;

nlohmann::json peak_json(const Peak& peak, const exec::DeviceInfo& device) {
  nlohmann::json out = {{peak.dtype, peak.gflops},      {"how", device.how(peak.dtype)},
                        {"all_ranks", peak.all_gflops}, {"threads_here", peak.threads},
                        {"cores_here", peak.cores},     {"measured", peak.measured}};
  if (!peak.doubt.empty()) out["doubt"] = peak.doubt;
  return out;
}

}  // namespace

void tell_peak(const Peak& peak) { told_peak = peak; }

std::string cpu_name() {
  // x86 names the model; Arm gives implementer and part numbers.
  std::ifstream info("/proc/cpuinfo");
  std::map<std::string, std::string> first;
  for (std::string line; std::getline(info, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string key = line.substr(0, colon),
                value = colon + 2 <= line.size() ? line.substr(colon + 2) : "";
    while (!key.empty() && (key.back() == '\t' || key.back() == ' ')) key.pop_back();
    first.emplace(std::move(key), std::move(value));
  }
  if (first.contains("model name")) return first["model name"];
  static const std::map<std::string, std::string> arm = {{"0xd40", "Neoverse V1"},
                                                         {"0xd4f", "Neoverse V2"},
                                                         {"0xd0c", "Neoverse N1"},
                                                         {"0xd49", "Neoverse N2"}};
  const std::string part = first.contains("CPU part") ? first["CPU part"] : "";
  if (const auto it = arm.find(part); it != arm.end()) return it->second;
  return part.empty() ? "unknown" : "Arm part " + part;
}

nlohmann::json environment(const std::string& device, const std::string& dtype, int threads) {
  utsname name{};
  ::uname(&name);
  const exec::DeviceInfo info = exec::device_info(device, threads);
  nlohmann::json out = {
      {"tessera", build_version},
      {"commit", build_commit},
      {"compiler", build_compiler},
      {"host", host_name()},
      {"system", std::string(name.sysname) + " " + name.release},
      {"machine", name.machine},
      {"cpu", cpu_name()},
      {"cores", available_cores()},
      {"threads", threads},
      {"device", info.name},
      {"peak_gflops",
       peak_json(told_peak ? *told_peak : peak_on(device, dtype, Ranks(nullptr), threads), info)}};
  if (const std::string card = info.card(); !card.empty()) out["card"] = card;
  if (!how_ranks_talk().empty()) out["ranks_talk"] = how_ranks_talk();
  return out;
}

}  // namespace tessera::run
