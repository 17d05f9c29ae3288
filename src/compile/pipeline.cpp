#include "compile/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "compile/stages.h"
#include "config/pipeline.h"
#include "files/text.h"

namespace tessera::run {
namespace {

constexpr std::string_view file_prefix = "file:";
constexpr std::size_t most_schedule_bytes = 16 << 20;

// Schedules by name: how one is made, and the bubble by its formula. Of ranks, stages and
// micro-batches.
struct Known {
  std::string_view name;
  transforms::Schedule (*make)(int, int, int);
  double (*bubble)(int, int, int);
};
constexpr Known known_schedules[] = {
    {"gpipe", transforms::gpipe, transforms::gpipe_bubble},
    {"1f1b", [](int ranks, int, int micros) { return transforms::one_f_one_b(ranks, micros); },
     [](int ranks, int, int micros) { return transforms::one_f_one_b_bubble(ranks, micros); }},
    {"interleaved",
     [](int ranks, int stages, int micros) {
       return transforms::interleaved(ranks, stages / ranks, micros);
     },
     [](int ranks, int stages, int micros) {
       return transforms::interleaved_bubble(ranks, stages / ranks, micros);
     }},
    {"zb", [](int ranks, int, int micros) { return transforms::zb_h1(ranks, micros); },
     [](int ranks, int, int micros) { return transforms::zb_h1_bubble(ranks, micros); }},
};

// Segments on one rank are filled and drained.
const Known& known_schedule(const config::Parallel& p) {
  const std::string_view name = p.pp == 1 ? "gpipe" : std::string_view(p.schedule);
  for (const Known& known : known_schedules)
    if (known.name == name) return known;
  CHECK(false, "a schedule that nobody knows: " + p.schedule);
  return known_schedules[0];
}

// One that was written for another pipeline is refused with all that differs.
void check_fit(const transforms::Schedule& s, const std::string& path, int ranks, int stages,
               int micros) {
  std::vector<std::string> problems;
  const auto compare = [&](const char* what, std::int64_t have, std::int64_t want) {
    if (have != want)
      problems.push_back(fmt::format("the schedule has {} {}, the run has {}", have, what, want));
  };
  compare("ranks", static_cast<std::int64_t>(s.ranks.size()), ranks);
  compare("stages", s.stages, stages);
  compare("micro-batches", s.micros, micros);
  if (!s.trains()) problems.emplace_back("the schedule has no backward turns");
  if (problems.empty()) return;
  Error error(ErrorKind::usage, problems[0], path,
              "change the file, or parallel.pp, parallel.chunks and batch.accumulate");
  for (std::size_t i = 1; i < problems.size(); ++i) error.and_also(problems[i]);
  throw error;
}

}  // namespace

bool pipelined(const config::Config& config, Goal goal) {
  return config.parallel.pp > 1 || (config.parallel.segments > 1 && goal == Goal::train);
}

std::vector<std::int64_t> micro_batches(std::int64_t samples, std::int64_t accumulate) {
  std::vector<std::int64_t> out;
  for (int i = 0; i < accumulate; ++i)
    if (const std::int64_t n = ir::split(samples, static_cast<int>(accumulate), i).size; n > 0)
      out.push_back(n);
  return out;
}

std::vector<std::int64_t> micro_batches_for(const config::Config& config, Goal goal,
                                            std::int64_t samples) {
  std::int64_t parts = 1;
  if (goal == Goal::train) parts = config.batch.accumulate;
  // With four micro-batches a stage the fill costs a fifth; each still has a sample for every dp
  // rank.
  if ((goal == Goal::evaluate || goal == Goal::predict) && config.parallel.pp > 1)
    parts =
        std::max<std::int64_t>(1, std::min(4 * config.parallel.pp, samples / config.parallel.dp));
  return micro_batches(samples, parts);
}

std::optional<transforms::Schedule> read_schedule(const config::Config& config) {
  const config::Parallel& p = config.parallel;
  if (!p.schedule.starts_with(file_prefix)) return std::nullopt;
  const std::string path = p.schedule.substr(file_prefix.size());
  transforms::Schedule schedule = transforms::parse_schedule(schedule_text(path), path);
  transforms::check(schedule, path);
  check_fit(schedule, path, static_cast<int>(p.pp), static_cast<int>(config::pipeline_stages(p)),
            static_cast<int>(config.batch.accumulate));
  return schedule;
}

namespace {

transforms::Schedule schedule_by(const config::Parallel& p,
                                 std::optional<transforms::Schedule> given, Goal goal, int micros) {
  const int ranks = static_cast<int>(p.pp), stages = static_cast<int>(config::pipeline_stages(p));
  // The last batch of an epoch may have fewer micro-batches; inference has its own, but stages stay
  // where their weights are.
  if (given && goal == Goal::train) return transforms::first_micros(std::move(*given), micros);
  if (given) return transforms::forward_only(ranks, transforms::homes(*given), micros);
  if (goal != Goal::train) return transforms::forward_only(ranks, stages, micros);
  return known_schedule(p).make(ranks, stages, micros);
}

}  // namespace

transforms::Schedule schedule_of(const StepSpec& spec, Goal goal, int micros) {
  return schedule_by(spec.config.parallel,
                     spec.schedule ? spec.schedule : read_schedule(spec.config), goal, micros);
}

transforms::Schedule schedule_of(const config::Config& config, Goal goal, int micros) {
  return schedule_by(config.parallel, read_schedule(config), goal, micros);
}

std::optional<double> bubble_formula(const config::Config& config, Goal goal, int micros) {
  const config::Parallel& p = config.parallel;
  const int ranks = static_cast<int>(p.pp), stages = static_cast<int>(config::pipeline_stages(p));
  if (goal != Goal::train) return transforms::forward_only_bubble(ranks, stages, micros);
  if (p.schedule.starts_with(file_prefix)) return std::nullopt;
  return known_schedule(p).bubble(ranks, stages, micros);
}

void check_schedule(const config::Config& config) {
  if (pipelined(config, Goal::train))
    schedule_of(config, Goal::train, static_cast<int>(config.batch.accumulate));
}

std::string schedule_file(const config::Config& config) {
  const std::string& schedule = config.parallel.schedule;
  return pipelined(config, Goal::train) && schedule.starts_with(file_prefix)
             ? schedule.substr(file_prefix.size())
             : "";
}

std::string schedule_text(const std::string& path) {
  return files::read_text(path, most_schedule_bytes);
}

std::map<std::string, int> stages_of_parameters(const models::ModelConfig& model,
                                                const std::vector<std::int64_t>& blocks) {
  std::map<std::string, int> out;
  const ir::Program program = transforms::cut(forward_of_one_image(model), blocks);
  for (const ir::Eqn& e : program.eqns)
    for (const ir::Input& in : program.inputs)
      if (std::find(e.in.begin(), e.in.end(), in.var) != e.in.end()) {
        const auto [it, fresh] = out.emplace(in.name, e.stage);
        CHECK(fresh || it->second == e.stage || in.kind != ir::Input::param,
              "parameter " + in.name + " is read by two stages");
      }
  return out;
}

int first_stage_rank(const StepSpec& spec) {
  if (spec.layout.pp == 1) return 0;
  return schedule_of(spec, Goal::train, static_cast<int>(spec.config.batch.accumulate)).home(0);
}

}  // namespace tessera::run
