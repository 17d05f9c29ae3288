#include "measure/segments.h"

#include "files/text.h"
#include "measure/environment.h"

namespace tessera::run {
namespace {

constexpr std::size_t most_environment_bytes = 4 << 20, most_segments = 1000;

nlohmann::json environment_of(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder / "env.json", error)) return nullptr;
  try {
    return nlohmann::json::parse(files::read_text(folder / "env.json", most_environment_bytes),
                                 nullptr, false);
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

nlohmann::json segments_of(const std::filesystem::path& folder) {
  const nlohmann::json environment = environment_of(folder);
  const bool there = environment.is_object() && environment.contains("segments") &&
                     environment["segments"].is_array();
  return there ? environment["segments"] : nlohmann::json::array();
}

Segment begin_segment(const Ranks& ranks, int threads, const std::filesystem::path& folder,
                      std::int64_t step, const std::string& device, const std::string& dtype) {
  Segment out;
  out.after_step = step;
  out.all = ranks.first() && step > 0 ? segments_of(folder) : nlohmann::json::array();
  out.key = peak_key(ranks, threads);
  out.peak = peak_on(device, dtype, ranks, threads, out.all);
  if (!ranks.first()) return out;
  tell_peak(out.peak);
  while (out.all.size() >= most_segments) out.all.erase(0);
  out.all.push_back({{"after_step", step},
                     {"host", out.key.host},
                     {"cpu", out.key.cpu},
                     {"ranks_here", out.key.ranks},
                     {"threads", out.key.threads},
                     {"cores", out.key.cores},
                     {"peak_gflops", out.peak.gflops},
                     {"measured", out.peak.measured},
                     {"doubt", out.peak.doubt}});
  return out;
}

void Segment::write(const std::filesystem::path& folder) const {
  nlohmann::json environment = environment_of(folder);
  if (!environment.is_object()) environment = nlohmann::json::object();
  environment["segments"] = all;
  files::write_atomically(
      folder / "env.json",
      environment.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace tessera::run
