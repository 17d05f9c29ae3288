#include "run/environment.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <thread>

#include "base/process.h"
#include "base/say.h"
#include "base/threads.h"
#include "exec/device.h"
#include "report/document.h"
#include "run/build_info.h"
#include "run/run.h"

namespace tessera::run {
namespace {

std::string ranks_talk;
std::optional<Peak> told_peak;

nlohmann::json peak_json(const Peak& peak) {
  nlohmann::json out = {{"f32", peak.gflops},
                        {"how",
                         "measured: independent f32 multiply-adds in registers on all threads, by "
                         "their CPU time; of one rank"},
                        {"all_ranks", peak.all_gflops},
                        {"threads_here", peak.threads},
                        {"cores_here", peak.cores},
                        {"measured", peak.measured}};
  if (!peak.doubt.empty()) out["doubt"] = peak.doubt;
  return out;
}

}  // namespace

void tell_how_ranks_talk(const std::string& how) { ranks_talk = how; }
const std::string& how_ranks_talk() { return ranks_talk; }
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

std::string version() { return std::string(build_version) + " (" + build_commit + ")"; }

nlohmann::json environment(const std::string& device, int threads) {
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
      {"device", exec::device_info(device, threads).name},
      {"peak_gflops",
       peak_json(told_peak ? *told_peak : peak_on(device, Ranks(nullptr), threads))}};
  if (!ranks_talk.empty()) out["ranks_talk"] = ranks_talk;
  return out;
}

int print_version(bool verbose, bool json) {
  nlohmann::ordered_json all = {
      {"tessera", build_version}, {"commit", build_commit}, {"compiler", build_compiler}};
  if (verbose) {
    all["cpu"] = cpu_name();
    all["cores"] = std::to_string(available_cores());
    for (const auto& [name, value] : exec::device_facts()) all[name] = value;
  }
  if (json) {
    report::print_document(all);
    return 0;
  }
  say(stdout, "tessera {}\n", version());
  for (const auto& [name, value] : all.items())
    if (verbose && name != "tessera" && name != "commit")
      say(stdout, "{:<14} {}\n", name, value.get<std::string>());
  return 0;
}

}  // namespace tessera::run
