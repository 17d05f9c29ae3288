#include "run/environment.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "base/process.h"
#include "base/threads.h"
#include "exec/cpu/peak.h"
#include "run/build_info.h"
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

double peak_gflops(int threads) {
  static std::map<int, double> known;
  const auto [it, fresh] = known.try_emplace(threads, 0.0);
  if (fresh) it->second = exec::cpu::measure_peak_gflops(threads);
  return it->second;
}

std::string version() { return std::string(build_version) + " (" + build_commit + ")"; }

nlohmann::json environment(int threads) {
  utsname name{};
  ::uname(&name);
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
      {"device", "cpu"},
      {"peak_gflops", {{"f32", peak_gflops(threads)}, {"how", "measured: independent f32 multiply-adds in registers on all threads"}}}};
  if (!ranks_talk.empty()) out["ranks_talk"] = ranks_talk;
  return out;
}

}  // namespace tessera::run
