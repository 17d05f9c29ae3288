// A study's file as a whole: what each key alone cannot show. How many runs it makes, and what
// would silently win over something else, or count the same training twice.
#include <fmt/format.h>

#include <algorithm>

#include "config/flags.h"
#include "config/study/file.h"

namespace tessera::config {
namespace {

const StudyAxis* axis_named(const StudyPart& part, const std::string& key) {
  const auto found = std::find_if(part.grid.begin(), part.grid.end(),
                                  [&](const StudyAxis& a) { return a.key == key; });
  return found == part.grid.end() ? nullptr : &*found;
}

void check_techniques(const StudyPart& part, std::vector<Problem>& to) {
  for (const StudyTechnique& t : part.techniques)
    for (const StudySetting& s : t.set)
      if (axis_named(part, s.key))
        to.push_back({s.place,
                      fmt::format("technique '{}' sets {}, but the grid of part {} does, too",
                                  clean(t.name, 40), s.key, part.name),
                      "keep it in one of them"});
}

// Checks the flags that `tessera bench infer` and `bench layers` take; the values behind the flags
// are theirs to check.
void check_arguments(const StudyPart& part, std::vector<Problem>& to) {
  std::vector<std::string> names = {"--batch", "--repeats", "--set"};
  if (part.verb == "infer") names.push_back("--check");
  for (const Flag& flag : flags()) names.emplace_back(flag.name);
  for (const std::string& word : part.arguments) {
    const std::string name = word.substr(0, word.find('='));
    if (!word.starts_with("--") || std::find(names.begin(), names.end(), name) != names.end())
      continue;
    const std::string close = name.size() > 64 ? "" : nearest(name, names);
    to.push_back(
        {part.place,
         fmt::format("arguments: `tessera bench {}` has no {}", part.verb, clean(name, 40)),
         close.empty() ? "`tessera bench --help` lists what it takes"
                       : "did you mean " + close + "?"});
  }
}

}  // namespace

std::vector<Problem> check_study(const StudyFile& file) {
  std::vector<Problem> out;
  std::int64_t all = 0;
  for (const StudyPart& p : file.parts) {
    const std::int64_t repeats = p.repeats > 0 ? p.repeats : file.repeats;
    std::int64_t points = std::max<std::int64_t>(1, static_cast<std::int64_t>(p.techniques.size()));
    for (const StudyAxis& a : p.grid)
      points = std::min<std::int64_t>(points * static_cast<std::int64_t>(a.values.size()),
                                      1'000'000'000);
    all += std::min<std::int64_t>(points, 1'000'000'000) * repeats;
    if (all > most_study_runs)
      return {
          {p.place, fmt::format("with part {} the study has {} runs", p.name, all),
           fmt::format("at most {}: fewer values in a grid, or fewer repeats", most_study_runs)}};
    check_techniques(p, out);
    check_arguments(p, out);
    if (const StudyAxis* seeds = axis_named(p, "run.seed"); seeds && repeats > 1)
      out.push_back({seeds->place,
                     fmt::format("part {} has run.seed in its grid and {} repeats, which count up "
                                 "from each of these seeds: the same "
                                 "training would count as several",
                                 p.name, repeats),
                     "leave run.seed out of the grid, or give the part repeats = 1"});
  }
  return out;
}

}  // namespace tessera::config
