// What a result depends on besides the config: machine, versions, commit, and the peak that "% of peak" is against.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera::run {

std::string cpu_name();
// Writes measured_peak_gflops for this many threads; cached for the process.
double peak_gflops(int threads);
// How this job's ranks talk (comm::Comm::describe), told by whoever starts them, before any of them asks; empty: there is one.
void tell_how_ranks_talk(const std::string& how);
const std::string& how_ranks_talk();
nlohmann::json environment(int threads);

}  // namespace tessera::run
