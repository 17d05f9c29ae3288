#include "run/environment.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "base/process.h"
#include "base/threads.h"
#include "exec/device.h"
#include "run/run.h"

namespace tessera::run {
namespace {

std::string ranks_talk;

}  // namespace

void tell_how_ranks_talk(const std::string& how) { ranks_talk = how; }
const std::string& how_ranks_talk() { return ranks_talk; }

std::string cpu_name() {
  // x86 names the model; Arm gives implementer and part numbers.
  std::ifstream info("/proc/cpuinfo");
  std::map<std::string, std::string> first;
  for (std::string line; std::getline(info, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string key = line.substr(0, colon), value = colon + 2 <= line.size() ? line.substr(colon + 2) : "";
    while (!key.empty() && (key.back() == '\t' || key.back() == ' ')) key.pop_back();
    first.emplace(std::move(key), std::move(value));
  }
  if (first.contains("model name")) return first["model name"];
  static const std::map<std::string, std::string> arm = {
      {"0xd40", "Neoverse V1"}, {"0xd4f", "Neoverse V2"}, {"0xd0c", "Neoverse N1"}, {"0xd49", "Neoverse N2"}};
  const std::string part = first.contains("CPU part") ? first["CPU part"] : "";
  if (const auto it = arm.find(part); it != arm.end()) return it->second;
  return part.empty() ? "unknown" : "Arm part " + part;
}

double peak_gflops(const std::string& device, int threads) {
  static std::map<std::pair<std::string, int>, double> known;
  const auto [it, fresh] = known.try_emplace({device, threads}, 0.0);
  if (fresh) it->second = exec::device_info(device, threads).peak_gflops();
  return it->second;
}

std::string version() { return std::string(TESSERA_VERSION) + " (" + TESSERA_COMMIT + ")"; }

nlohmann::json environment(const std::string& device, int threads) {
  utsname name{};
  ::uname(&name);
  nlohmann::json out = {
      {"tessera", TESSERA_VERSION},
      {"commit", TESSERA_COMMIT},
      {"compiler", TESSERA_COMPILER},
      {"host", host_name()},
      {"system", std::string(name.sysname) + " " + name.release},
      {"machine", name.machine},
      {"cpu", cpu_name()},
      {"cores", available_cores()},
      {"threads", threads},
      {"device", exec::device_info(device, threads).name},
      {"peak_gflops", {{"f32", peak_gflops(device, threads)}, {"how", "measured: independent f32 multiply-adds in registers on all threads"}}}};
  if (!ranks_talk.empty()) out["ranks_talk"] = ranks_talk;
  return out;
}

}  // namespace tessera::run
