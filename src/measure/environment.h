// Facts that a result depends on besides the config: machine, versions, commit, and the peak that
// "% of peak" is against.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "measure/peak.h"

namespace tessera::run {

std::string cpu_name();
// The peak that a run's "% of peak" is against, told by its first rank before anybody asks for the
// environment; without it the environment looks for that of one rank.
void tell_peak(const Peak& peak);
nlohmann::json environment(const std::string& device, const std::string& dtype, int threads);

}  // namespace tessera::run
