// tessera version: what this build is, and what it finds on this machine.
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/say.h"
#include "base/threads.h"
#include "exec/device.h"
#include "measure/environment.h"
#include "report/document.h"
#include "verbs/verbs.h"

namespace tessera::run {

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
