#include "config/pipeline.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "base/check.h"

namespace tessera::config {
namespace {

const std::vector<std::string> count_keys = {"parallel.pp", "parallel.segments", "parallel.chunks"};

std::string stages_text(std::int64_t n) {
  return n == 1 ? "is 1 stage" : fmt::format("are {} stages", n);
}

// How the number of stages came about: "parallel.pp x parallel.chunks = 4 x 2 = 8".
std::string count_text(const Parallel& p) {
  if (p.pp == 1) return fmt::format("parallel.segments = {}", p.segments);
  if (p.chunks == 1) return fmt::format("parallel.pp = {}", p.pp);
  return fmt::format("parallel.pp x parallel.chunks = {} x {} = {}", p.pp, p.chunks,
                     p.pp * p.chunks);
}

// Several stages on a rank are what the interleaved schedule is for, and it has no other use; one
// that is read from a file may have them.
void interleaved(Config& c, bool is_interleaved, const std::function<bool(std::string_view)>& given,
                 LayoutOutcome& out) {
  Parallel& p = c.parallel;
  if (p.chunks > 1 && p.pp == 1) {
    out.problems.push_back(
        {{"parallel.chunks", "parallel.pp"},
         fmt::format(
             "parallel.chunks = {} are stages on each of several ranks, but parallel.pp = 1",
             p.chunks),
         fmt::format("choose parallel.pp > 1, or parallel.segments = {} for stages on one rank",
                     p.chunks)});
  } else if (p.chunks > 1 && !is_interleaved && !p.schedule.starts_with("file:")) {
    out.problems.push_back(
        {{"parallel.chunks", "parallel.schedule"},
         fmt::format("parallel.chunks = {} needs parallel.schedule = \"interleaved\", not \"{}\"",
                     p.chunks, clean(p.schedule)),
         "choose interleaved or file:PATH, or leave chunks at 1"});
  } else if (is_interleaved && p.pp > 1 && p.chunks == 1) {
    const std::int64_t blocks = models::block_count(c.model), wanted = 2 * p.pp;
    if (given("parallel.chunks")) {
      out.problems.push_back({{"parallel.chunks", "parallel.schedule"},
                              "parallel.schedule = \"interleaved\" needs 2 stages or more on each "
                              "rank, but parallel.chunks = 1",
                              "choose parallel.chunks = 2, or 1f1b"});
    } else if (wanted > blocks) {
      out.problems.push_back({{"parallel.schedule", "parallel.pp", "parallel.chunks"},
                              fmt::format("parallel.schedule = \"interleaved\" needs 2 stages or "
                                          "more on each rank: {} with parallel.pp = "
                                          "{}, but the model has {} block{}",
                                          wanted, p.pp, blocks, blocks == 1 ? "" : "s"),
                              blocks >= 4
                                  ? fmt::format("choose parallel.pp up to {}, or 1f1b", blocks / 2)
                                  : "choose 1f1b"});
    } else {
      p.chunks = 2;
      out.notes.emplace_back("parallel.chunks = 2, because parallel.schedule = \"interleaved\"");
    }
  } else if (is_interleaved && p.pp == 1 && p.segments > 1) {
    out.problems.push_back({{"parallel.schedule", "parallel.segments", "parallel.pp"},
                            fmt::format("parallel.schedule = \"interleaved\" deals stages to "
                                        "several ranks, but parallel.segments = {} are "
                                        "on one",
                                        p.segments),
                            "choose gpipe, 1f1b or zb"});
  }
}

}  // namespace

std::int64_t pipeline_stages(const Parallel& p) { return p.pp > 1 ? p.pp * p.chunks : p.segments; }

std::vector<Finding> stage_problems(const Config& c) {
  const Parallel& p = c.parallel;
  const std::int64_t blocks = models::block_count(c.model), stages = pipeline_stages(p);
  const std::vector<double>& list = p.stages.list;
  std::vector<Finding> out;
  if (stages > blocks)
    out.push_back({count_keys,
                   fmt::format("{}: more stages than the {} block{} of the model", count_text(p),
                               blocks, blocks == 1 ? "" : "s"),
                   fmt::format("every stage needs a block: at most {} stage{}", blocks,
                               blocks == 1 ? "" : "s")});
  if (list.empty()) return out;
  std::vector<std::string> keys = {"parallel.stages"};
  keys.insert(keys.end(), count_keys.begin(), count_keys.end());
  if (static_cast<std::int64_t>(list.size()) != stages)
    out.push_back(
        {keys,
         fmt::format("parallel.stages has {} number{}, but there {}: {}", list.size(),
                     list.size() == 1 ? "" : "s", stages_text(stages), count_text(p)),
         stages == 1
             ? fmt::format("choose parallel.pp = {}, or leave parallel.stages out", list.size())
             : "give the blocks of every stage, or params, flops or time"});
  const double sum = std::accumulate(list.begin(), list.end(), 0.0);
  for (const double n : list)
    if (n < 1 || n != std::floor(n)) {
      out.push_back(
          {keys,
           fmt::format("parallel.stages: expected whole numbers of blocks, 1 or more, found {}", n),
           ""});
      return out;
    }
  if (sum != static_cast<double>(blocks))
    out.push_back({keys,
                   fmt::format("parallel.stages adds up to {:.0f} block{}, but the model has {}",
                               sum, sum == 1 ? "" : "s", blocks),
                   "every block belongs to one stage; the embedding counts with the first block, "
                   "the head with the last"});
  return out;
}

LayoutOutcome resolve_pipeline(Config& c, const std::function<bool(std::string_view)>& given) {
  LayoutOutcome out;
  Parallel& p = c.parallel;
  const bool sound =
      models::problems(c.model)
          .empty();  // else blocks can be any number, and the model is complained of elsewhere
  bool known = true;
  try {
    const Schedule schedule = parse_schedule(p.schedule);
    if (schedule.path.empty()) p.schedule = schedule.kind;
  } catch (const Error& e) {
    out.problems.push_back({{"parallel.schedule"}, e.message, e.hint});
    known = false;
  }
  if (p.stages.list.empty() && p.stages.word.empty()) p.stages.word = Parallel{}.stages.word;
  if (p.segments > 1 && p.pp > 1)
    out.problems.push_back(
        {{"parallel.segments", "parallel.pp"},
         fmt::format("parallel.segments = {} are stages on one rank, but parallel.pp = {}",
                     p.segments, p.pp),
         "leave segments at 1; with the interleaved schedule parallel.chunks is the number of "
         "stages per rank"});
  if (known && sound) interleaved(c, p.schedule == "interleaved", given, out);
  if (sound)
    for (Finding& problem : stage_problems(c)) out.problems.push_back(std::move(problem));
  if (p.pp > 1 && c.batch.accumulate == 1)
    out.notes.push_back(fmt::format(
        "parallel.pp = {} with one micro-batch: the pipeline is a relay; raise batch.accumulate",
        p.pp));
  if (pipeline_stages(p) == 1 && known && p.schedule != Parallel{}.schedule)
    out.notes.push_back(fmt::format("parallel.schedule = \"{}\" orders nothing: there is one stage",
                                    clean(p.schedule)));
  if (p.pp == 1 && p.segments > 1 && known && given("parallel.schedule") && p.schedule != "gpipe" &&
      p.schedule != "interleaved" && !p.schedule.starts_with("file:"))
    out.notes.push_back(
        fmt::format("parallel.schedule = \"{}\" is for several ranks: the {} segments of one rank "
                    "run fill-drain (gpipe)",
                    clean(p.schedule), p.segments));
  return out;
}

}  // namespace tessera::config
