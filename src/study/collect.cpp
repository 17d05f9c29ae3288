#include "study/collect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/printable.h"
#include "files/json.h"
#include "files/look.h"
#include "files/text.h"

namespace tessera::study {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

double number(const json& j, const char* key) {
  const auto found = j.find(key);
  return found != j.end() && found->is_number() ? found->get<double>() : report::kUnknown;
}
std::int64_t whole(const json& j, const char* key, std::int64_t otherwise = 0) {
  const auto found = j.find(key);
  return found != j.end() && found->is_number_integer() ? found->get<std::int64_t>() : otherwise;
}
std::string word(const json& j, const char* key) {
  const auto found = j.find(key);
  return found != j.end() && found->is_string() ? found->get<std::string>() : "";
}

[[noreturn]] void refuse_document(const std::string& where, const std::string& why) {
  throw Error(ErrorKind::data, "the run ended well, but what it printed cannot be used: " + why,
              where);
}

// "dp2 x tp2"; "one rank".
std::string layout_words(const json& layout) {
  std::string out;
  for (const char* axis : {"pp", "dp", "sp", "tp"})
    if (const std::int64_t n = whole(layout, axis, 1); n > 1)
      out += fmt::format("{}{}{}", out.empty() ? "" : " x ", axis, n);
  return out.empty() ? "one rank" : out;
}

// The fields that both documents have.
report::RunRecord common(const json& d, const std::string& verb, const std::string& where) {
  if (!d.is_object()) refuse_document(where, "it is no JSON object");
  report::RunRecord r;
  r.verb = verb;
  r.model = word(d, "model");
  r.dtype = word(d, "dtype");
  r.layout = "one rank";
  r.threads = static_cast<int>(std::clamp<std::int64_t>(whole(d, "threads"), 0, 1 << 20));
  r.global_batch = whole(d, "batch");
  r.steps = whole(d, "runs");
  if (const auto layout = d.find("layout"); layout != d.end() && layout->is_object()) {
    r.layout = layout_words(*layout);
    r.ranks = static_cast<int>(std::clamp<std::int64_t>(whole(*layout, "ranks", 1), 1, 1 << 20));
  }
  return r;
}

}  // namespace

report::RunRecord record_of_infer(const json& d, const std::string& where) {
  report::RunRecord r = common(d, "infer", where);
  const auto ms = d.find("ms");
  if (ms == d.end() || !ms->is_object() || !std::isfinite(number(*ms, "median")))
    refuse_document(where, "it has no ms.median");
  r.latency_ms = r.step_ms.median = number(*ms, "median");
  r.step_ms.min = r.step_ms.p10 = number(*ms, "min");
  r.step_ms.max = r.step_ms.p90 = number(*ms, "max");
  r.images_per_s = number(d, "images_per_s");
  r.mfu = number(d, "gflops") / number(d, "peak_gflops");
  r.planned = whole(d, "peak_bytes");  // of the plan; nothing measures it
  if (const auto bytes = d.find("comm_bytes"); bytes != d.end() && bytes->is_object())
    r.comm_bytes = number(*bytes, "total");
  // Equations by the part of the model that they belong to.
  if (const auto ops = d.find("ops"); ops != d.end() && ops->is_array())
    for (const json& op : *ops) {
      if (!op.is_object()) continue;
      const std::string group = word(op, "group");
      auto part = std::find_if(r.parts.begin(), r.parts.end(),
                               [&](const report::PartRecord& p) { return p.name == group; });
      if (part == r.parts.end())
        part = r.parts.insert(part, {.name = group, .seconds = 0, .share = 0, .count = 1});
      part->seconds += number(op, "ms") * 1e-3;
      part->share += number(op, "share");
    }
  return r;
}

// The least number of a list; not known where there is none.
double least_of(const json& object, const char* key) {
  const auto list = object.find(key);
  double least = report::kUnknown;
  if (list == object.end() || !list->is_array()) return least;
  for (const json& v : *list)
    if (v.is_number())
      least = std::isfinite(least) ? std::min(least, v.get<double>()) : v.get<double>();
  return least;
}

report::RunRecord record_of_layers(const json& d, const std::string& where) {
  report::RunRecord r = common(d, "layers", where);
  const double total = number(d, "total_s");
  const auto parts = d.find("parts");
  if (!std::isfinite(total) || parts == d.end() || !parts->is_array())
    refuse_document(where, "it has no total_s or no parts");
  r.latency_ms = r.step_ms.median = r.step_ms.p10 = r.step_ms.p90 = r.step_ms.min = r.step_ms.max =
      total * 1e3;
  if (total > 0) r.images_per_s = static_cast<double>(r.global_batch) / total;
  for (const json& p : *parts)
    if (p.is_object())
      r.parts.push_back({.name = word(p, "name"),
                         .seconds = number(p, "seconds"),
                         .share = number(p, "share"),
                         .count = whole(p, "count", 1),
                         .busy = least_of(p, "busy")});
  return r;
}

report::RunRecord collect(const std::string& verb, const fs::path& folder, std::int64_t warmup) {
  if (verb == "train") return report::read_run(folder.string(), warmup);
  const fs::path path = folder / "stdout.txt";
  const json document =
      files::parse_json(files::read_text(path, std::size_t{64} << 20, ErrorKind::data));
  report::RunRecord r = verb == "infer" ? record_of_infer(document, path.string())
                                        : record_of_layers(document, path.string());
  r.folder = folder.string();
  return r;
}

std::string tidy(const fs::path& folder) {
  std::string stays;
  const auto remove = [&](const fs::path& path) {
    std::error_code error;
    fs::remove_all(path, error);
    if (error && stays.empty())
      stays = fmt::format("{} cannot be removed: {}", path.string(), error.message());
  };
  for (const char* name : {"ckpt", "weights.safetensors"}) remove(folder / name);
  try {
    for (const fs::path& path : files::entries_of(folder))
      if (path.filename().string().starts_with("events.out.tfevents.")) remove(path);
  } catch (const Error& error) {
    if (stays.empty()) stays = error.where + ": " + error.message;
  }
  return stays;
}

}  // namespace tessera::study
