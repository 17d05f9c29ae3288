#include "page/compare_facts.h"

#include <algorithm>
#include <set>

namespace tessera::report {

Facts facts_of(const RunRecord& r) {
  Facts out = {{"model", r.model},
               {"data", r.data},
               {"dtype", r.dtype},
               {"layout", r.layout},
               {"ranks", std::to_string(r.ranks)},
               {"hosts", std::to_string(r.hosts)},
               {"threads", std::to_string(r.threads)},
               {"global batch", std::to_string(r.global_batch)},
               {"accumulate", std::to_string(r.accumulate)},
               {"steps", std::to_string(r.steps)}};
  for (const char* key :
       {"tessera", "commit", "compiler", "system", "cpu", "cores", "device", "host"})
    if (r.env.is_object() && r.env.contains(key)) {
      const auto& v = r.env[key];
      out.emplace_back(
          key, v.is_string()
                   ? v.get<std::string>()
                   : v.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    }
  return out;
}

// Without a pipeline the schedule says nothing.
static bool has_no_pipeline(const RunRecord& r) {
  const auto is_one = [&](const char* key) {
    return std::find(r.settings.begin(), r.settings.end(),
                     std::pair<std::string, std::string>(key, "1")) != r.settings.end();
  };
  return is_one("parallel.pp") && is_one("parallel.segments");
}

bool said_by_facts(const RunRecord& r, const std::string& key, const std::string& value) {
  static const std::set<std::string> known = {"model.name",  "data.source",   "precision.dtype",
                                              "parallel.pp", "parallel.dp",   "parallel.sp",
                                              "parallel.tp", "parallel.zero", "run.threads",
                                              "run.np",      "batch.global",  "batch.accumulate"};
  return known.contains(key) || (key == "model.family" && value == r.model) ||
         (key == "parallel.schedule" &&
          (r.layout.find(value) != r.layout.npos || has_no_pipeline(r)));
}

}  // namespace tessera::report
