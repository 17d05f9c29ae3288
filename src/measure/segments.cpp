#include "measure/segments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "config/devices.h"
#include "exec/cpu/cpu.h"
#include "files/look.h"
#include "files/text.h"
#include "measure/environment.h"

namespace tessera::run {
namespace {

constexpr std::size_t most_environment_bytes = 4 << 20, most_segments = 1000;

// env.json; an empty object where there is none. Error(disk) when it is there and cannot be used.
nlohmann::json environment_of(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "env.json";
  if (!files::is_there(path)) return nlohmann::json::object();
  nlohmann::json found = nlohmann::json::parse(
      files::read_text(path, most_environment_bytes, ErrorKind::disk), nullptr, false);
  if (!found.is_object()) throw Error(ErrorKind::disk, "expected a JSON object", path.string());
  return found;
}

// The segments in env.json; none where it cannot be used, and then `lost` says so.
nlohmann::json segments_of(const std::filesystem::path& folder, std::string& lost) {
  try {
    const nlohmann::json environment = environment_of(folder);
    const auto found = environment.find("segments");
    if (found == environment.end()) return nlohmann::json::array();
    if (!found->is_array()) throw Error(ErrorKind::disk, "its segments are no list");
    return *found;
  } catch (const Error& error) {
    lost = fmt::format(
        "{} cannot be used ({}): it begins anew, without the machines of the run's earlier "
        "segments",
        (folder / "env.json").string(), error.message);
    return nlohmann::json::array();
  }
}

// The kernels of all ranks that compute on a CPU, each once: "NEON, bfmmla"; "": none does.
std::string kernels_of(const Ranks& ranks, const std::string& devices, const std::string& dtype) {
  const std::vector<std::string> words = config::listed_devices(devices);
  const bool cpu = words[static_cast<std::size_t>(ranks.rank()) % words.size()] == "cpu";
  std::set<std::string> all;
  for (const std::string& names : ranks.gather_text(cpu ? exec::cpu::kernel_names(dtype) : ""))
    if (!names.empty()) all.insert(names);
  return fmt::format("{}", fmt::join(all, "; "));
}

std::string changed_kernels(const nlohmann::json& before, const std::string& now) {
  if (before.empty() || !before.back().is_object()) return "";
  const auto said = before.back().find("kernels");
  if (said == before.back().end() || !said->is_string() || *said == now) return "";
  const std::string old = said->get<std::string>().substr(0, 200);
  return fmt::format(
      "so far this run computed with the kernels {}, and it goes on with {}: from here on its bits "
      "will differ from those of a run that was not interrupted",
      old.empty() ? "of a card" : old, now.empty() ? "those of a card" : now);
}

}  // namespace

Segment begin_segment(const Ranks& ranks, int threads, const std::filesystem::path& folder,
                      std::int64_t step, const std::string& device, const std::string& dtype) {
  Segment out;
  out.after_step = step;
  out.all = ranks.first() && step > 0 ? segments_of(folder, out.lost) : nlohmann::json::array();
  out.key = peak_key(ranks, threads);
  out.peak = peak_on(device, dtype, ranks, threads, out.all);
  const std::string kernels = kernels_of(ranks, device, dtype);
  if (!ranks.first()) return out;
  out.other_kernels = changed_kernels(out.all, kernels);
  tell_peak(out.peak);
  while (out.all.size() >= most_segments) out.all.erase(0);
  out.all.push_back({{"after_step", step},
                     {"host", out.key.host},
                     {"cpu", out.key.cpu},
                     {"ranks_here", out.key.ranks},
                     {"threads", out.key.threads},
                     {"cores", out.key.cores},
                     {"kernels", kernels},
                     {"peak_gflops", out.peak.gflops},
                     {"peak_dtype", out.peak.dtype},
                     {"measured", out.peak.measured},
                     {"doubt", out.peak.doubt}});
  return out;
}

void Segment::write(const std::filesystem::path& folder) const {
  nlohmann::json environment = environment_of(folder);
  environment["segments"] = all;
  files::write_atomically(
      folder / "env.json",
      environment.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace tessera::run
