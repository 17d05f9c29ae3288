// What a result depends on besides the config: machine, versions, commit, and the peak that "% of peak" is against.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera::run {

std::string cpu_name();
// Measured on this device with this many threads (exec::DeviceInfo), once for the process.
double peak_gflops(const std::string& device, int threads);
// How this job's ranks talk (comm::Comm::describe), told by whoever starts them, before any of them asks; empty: there is one.
void tell_how_ranks_talk(const std::string& how);
const std::string& how_ranks_talk();
nlohmann::json environment(const std::string& device, int threads);

}  // namespace tessera::run
