// Files of studies: what is accepted keeps to the limits, its runs are planned or refused in words,
// and identities are all different.
#include <set>

#include "fuzz.h"
#include "study/grid.h"
#include "study/launch.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  const std::string_view text = fuzz::as_text(input, size);
  fuzz::accepts(ErrorKind::usage, "s.toml", [&] {
    const config::StudyFile file = config::study_from_text(text, "s.toml");
    if (file.parts.empty() || file.parts.size() > 64)
      fuzz::finding("a study without parts, or with too many");
    if (!file.config.empty()) return;  // a file of this machine
    std::size_t points = 0;
    for (const config::StudyPart& part : file.parts) {
      std::size_t here = std::max<std::size_t>(1, part.techniques.size());
      for (const config::StudyAxis& axis : part.grid) here *= axis.values.size();
      points += here;
    }
    if (points > 100) return;  // takes long and shows nothing new
    const study::Plan plan = study::plan_study(file);
    std::set<std::string> identities;
    for (const study::PlannedRun& run : plan.runs) {
      identities.insert(run.identity);
      const auto command =
          study::command_of(file, plan.points[run.point], run, "out", "tessera", false);
      study::shell_line(command, "tessera");
    }
    if (identities.size() != plan.runs.size()) fuzz::finding("two runs have one identity");
  });
  return 0;
}
