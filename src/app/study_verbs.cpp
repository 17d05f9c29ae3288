// The verbs `study` and `report`: a grid of runs and its page.
#include <memory>
#include <string>

#include "app/verbs.h"
#include "base/printable.h"
#include "ranks/device_here.h"
#include "study/study.h"

namespace tessera::app {

void add_study_verb(CLI::App& app, char**, bool&, int& code) {
  auto study = std::make_shared<study::StudyOptions>();
  CLI::App* study_verb = app.add_subcommand(
      "study", "run a grid of trainings and benchmarks, resumable, and write its page");
  study_verb->add_option("STUDY", study->file, "a study's TOML file (docs/studies.md)")->required();
  study_verb->add_option("--out", study->out, "its folder (default: runs/study-NAME)")
      ->type_name("DIR");
  study_verb->add_option("--only", study->only, "only this part (may be repeated)")
      ->type_name("PART")
      ->allow_extra_args(false);
  study_verb->add_flag("--list,--dry-run", study->list,
                       "say what would run and which launcher starts it; start nothing");
  study_verb->add_flag("--retry", study->retry, "also run again what failed before");
  study_verb->add_flag(
      "--fresh", study->fresh,
      "forget what was run in the folder (with --only: of those parts) and start over");
  study_verb->add_flag("--quiet", study->quiet, "no progress on stderr");
  study_verb->add_flag("--json", study->json, "print one JSON document on stdout");
  study_verb->callback([study, &code] {
    // The command that makes the whole study; --only, --retry and --fresh concern one call of it.
    study->command = "tessera study " + shell_word(study->file) +
                     (study->out.empty() ? "" : " --out " + shell_word(study->out));
    study->missing = run::missing_here;
    code = study::study(*study);
  });

  auto report = std::make_shared<study::ReportOptions>();
  CLI::App* report_verb = app.add_subcommand(
      "report", "the page of a run or a study, of two studies, or of any number of runs");
  report_verb
      ->add_option("RUN|STUDY", report->folders,
                   "folders: one run or study, two studies, or any number of runs to compare")
      ->required()
      ->expected(1, 64);
  report_verb->add_option("--out", report->out, "folder of the page (default: the first one)")
      ->type_name("DIR");
  report_verb
      ->add_option("--format", report->format,
                   "html, or md: report.md for a pull request, figures beside it")
      ->check(CLI::IsMember({"html", "md"}))
      ->capture_default_str();
  report_verb->add_flag("--watch", report->watch,
                        "write it again every two seconds until the study or run is done");
  report_verb->add_flag("--json", report->json, "print one JSON document on stdout");
  report_verb->callback([report, &code] { code = study::make_report(*report); });
}

}  // namespace tessera::app
