// The segments of a run: one for each process that went on with it, with the machine, the step it
// began after, the kernels that it computes with and the peak that its "% of peak" is against. They
// lie in env.json and in summary.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "measure/peak.h"

namespace tessera::run {

struct Segment {
  PeakKey key;
  Peak peak;
  std::int64_t after_step = 0;
  nlohmann::json all;  // on the first rank: those before, and this one
  // On the first rank: that the last segment computed with other kernels, so bits will differ; "":
  // it did not, or did not say.
  std::string other_kernels;
  std::string lost;  // on the first rank: why those before are not in `all`; "": they are

  // Into env.json, which a run has just written. Error(disk).
  void write(const std::filesystem::path& folder) const;
};
// The segment of this process, which goes on after `step` (0: begins) in the folder of the run; all
// ranks make the call.
Segment begin_segment(const Ranks& ranks, int threads, const std::filesystem::path& folder,
                      std::int64_t step, const std::string& device = "cpu",
                      const std::string& dtype = "f32");

}  // namespace tessera::run
