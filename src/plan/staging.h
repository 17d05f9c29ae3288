// Memory that what comes from a file and what goes there passes through, on a device that files
// cannot reach by themselves. Convention: a place is taken when a copy starts and free again once a
// step waits for it, so that there are as many places as copies are under way at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "plan/plan.h"

namespace tessera::plan {

struct FileStaging {
  std::map<std::size_t, std::size_t> place_of;  // by step
  std::vector<std::int64_t> bytes;              // per place
  std::int64_t total() const {
    std::int64_t sum = 0;
    for (const std::int64_t n : bytes) sum += n;
    return sum;
  }
};

// Whether a step is a copy between a file and the device.
inline bool moves_file(const Plan& plan, const Step& step) {
  return step.move != Move::none &&
         plan.home_of(step.move == Move::fetch ? step.in[0] : step.out[0]) == ir::Home::file;
}

inline FileStaging file_staging(const Plan& plan) {
  FileStaging out;
  std::vector<bool> taken;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    for (const int other : step.waits)
      if (const auto found = out.place_of.find(static_cast<std::size_t>(other));
          found != out.place_of.end())
        taken[found->second] = false;
    if (!moves_file(plan, step)) continue;
    const auto place =
        static_cast<std::size_t>(std::find(taken.begin(), taken.end(), false) - taken.begin());
    if (place == taken.size()) {
      taken.push_back(false);
      out.bytes.push_back(0);
    }
    taken[place] = step.stream == 1;
    out.bytes[place] = std::max(out.bytes[place], step.in[0].type.bytes());
    out.place_of[i] = place;
  }
  return out;
}

}  // namespace tessera::plan
