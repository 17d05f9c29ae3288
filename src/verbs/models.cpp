// models: the presets as a table.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/say.h"
#include "compile/compile.h"
#include "models/model.h"
#include "report/console.h"
#include "report/document.h"
#include "verbs/verbs.h"

namespace tessera::run {

using nlohmann::ordered_json;

int list_models(bool json) {
  ordered_json all = ordered_json::array();
  if (!json)
    say(stdout, "{:18} {:>10} {:>10} {:>10}  {}\n", "name", "image", "params", "GFLOP", "what");
  for (const models::Preset& row : models::presets()) {
    std::int64_t params = 0;
    for (const models::Param& p : models::parameters(row.config))
      params += p.buffer ? 0 : ir::elements(p.shape);
    config::Config config;
    config.model = row.config;
    const double flops = compile(config, Goal::predict, {1}, plan::Target{}).plan.cost.flops;
    const models::ModelConfig& m = row.config;
    if (json)
      all.push_back({{"name", row.name},
                     {"family", m.family},
                     {"image", {m.image_h, m.image_w}},
                     {"channels", m.channels},
                     {"classes", m.classes},
                     {"params", params},
                     {"flops", flops},
                     {"note", row.note}});
    else
      report::say_sentence("{:18} {:>10} {:>10} {:>10.3f}  {}\n", row.name,
                           fmt::format("{}x{}x{}", m.image_h, m.image_w, m.channels),
                           report::millions(params), flops * 1e-9, row.note);
  }
  if (json)
    report::print_document(all);
  else
    report::say_sentence(
        "params and GFLOP (2 x multiply-adds) are for one image; every dimension can be changed: "
        "--set model.depth=4\n");
  return 0;
}

}  // namespace tessera::run
