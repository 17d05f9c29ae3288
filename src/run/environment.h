// What a result depends on besides the config: machine, versions, commit, and the peak that "% of peak" is against.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera::run {

std::string cpu_name();
// Writes measured_peak_gflops for this many threads; cached for the process.
double peak_gflops(int threads);
nlohmann::json environment(int threads);

}  // namespace tessera::run
