#include <cstdio>
#include <memory>

#include "app/arguments.h"
#include "app/verbs.h"
#include "base/check.h"
#include "base/say.h"
#include "compile/pipeline.h"
#include "config/fields.h"
#include "config/print.h"
#include "config/validate.h"
#include "input/dataset.h"
#include "report/console.h"
#include "report/document.h"
#include "train/run_folder.h"
#include "verbs/verbs.h"

namespace tessera::app {

void add_explain_verb(CLI::App& app, char**, bool& json, int& code) {
  struct Given {
    ConfigArguments config;
    run::ExplainOptions explain;
    bool no_program = false;
  };
  const auto given = std::make_shared<Given>();
  run::ExplainOptions& explain = given->explain;
  CLI::App* verb = add_verb(
      app, "explain",
      "program, plan, communication, memory and FLOPs of any layout, without running", json);
  given->config.add_to(*verb);
  verb->add_option("--for", explain.goal, "train | infer")
      ->check(CLI::IsMember({"train", "infer"}));
  verb->add_option("--dump-passes", explain.dump_passes,
                   "write the program after each pass to DIR/NN_<pass>.ir")
      ->type_name("DIR");
  verb->add_option("--disable", explain.disabled, "leave out a pass (may be repeated)")
      ->type_name("PASS");
  verb->add_option("--rank", explain.rank, "whose plan, messages and memory are shown (default: 0)")
      ->type_name("R");
  verb->add_option("--schedule-svg", explain.schedule_svg,
                   "write the pipeline's schedule as a picture")
      ->type_name("FILE");
  verb->add_option("--run", explain.run,
                   "the configuration of a run folder, its pipeline also as it was measured")
      ->type_name("RUN");
  verb->add_flag("--before", explain.before,
                 "also print the program before it was placed on the ranks");
  verb->add_flag("--plan", explain.plan, "also print every step with its storage");
  verb->add_flag("--no-program", given->no_program, "only the summary");
  verb->callback([given, &json, &code] {
    run::ExplainOptions& explain = given->explain;
    if (!explain.run.empty()) {
      if (const std::string more = given->config.given(); !more.empty())
        throw Error(ErrorKind::usage,
                    "--run takes the configuration of the run, and " + more + " was given, too",
                    "--run " + explain.run,
                    "leave it out, or explain RUN/resolved.toml with changes instead of --run");
      given->config.path = run::configuration_of_run(explain.run);
    }
    explain.program = !given->no_program && explain.run.empty();
    explain.json = json;
    const config::Purpose purpose =
        explain.goal == "train" ? config::Purpose::other : config::Purpose::inference;
    code = run::explain(given->config.load(purpose, 0), explain);
  });
}

void add_models_verb(CLI::App& app, char**, bool& json, int& code) {
  CLI::App* verb = add_verb(app, "models", "the presets, with parameters and FLOPs", json);
  verb->callback([&json, &code] { code = run::list_models(json); });
}

void add_version_verb(CLI::App& app, char**, bool& json, int& code) {
  const auto verbose = std::make_shared<bool>(false);
  CLI::App* verb = add_verb(app, "version", "this build, and what it finds on this machine", json);
  verb->add_flag("--verbose", *verbose, "also cores, driver, GPUs and libraries");
  verb->callback([verbose, &json, &code] { code = run::print_version(*verbose, json); });
}

void add_doctor_verb(CLI::App& app, char** argv, bool& json, int& code) {
  const auto given = std::make_shared<run::DoctorOptions>();
  CLI::App* verb = add_verb(app, "doctor",
                            "look at the hosts of a job before it starts: exit code 0 when nothing "
                            "has to be mended, else 1",
                            json);
  verb->add_option("--hostfile", given->hostfile,
                   "hosts to look at; else those of the Slurm job, "
                   "else this machine")
      ->type_name("FILE");
  verb->add_option("--np", given->ranks, "ranks, where no hosts are named")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--out", given->folder, "where a run would be")->type_name("DIR");
  verb->callback([given, argv, &json, &code] {
    given->json = json;
    code = run::doctor(*given, argv);
  });
}

void add_config_verb(CLI::App& app, char**, bool& json, int&) {
  CLI::App* config_verb =
      app.add_subcommand("config", "look at a configuration without running it");
  config_verb->require_subcommand(1);
  const auto show_config = std::make_shared<ConfigArguments>();
  CLI::App* show_verb = config_verb->add_subcommand("show", "every value, resolved");
  show_verb->add_flag("--json", json, "as JSON");
  show_config->add_to(*show_verb);
  show_verb->callback([show_config, &json] {
    const config::Loaded loaded = show_config->load_all(config::Purpose::other, 0);
    for (const std::string& note : loaded.notes) report::say_note(note);
    if (json) return say_json(stdout, config::to_json(loaded));
    for (const std::string& line : config::split(config::effective_text(loaded.deepspeed), '\n'))
      say(stdout, "# {}\n", line);
    say_lines(stdout, (loaded.deepspeed.empty() ? "" : "\n") + config::to_toml(loaded.config));
  });
  const auto check_config = std::make_shared<ConfigArguments>();
  CLI::App* check_verb =
      config_verb->add_subcommand("check", "all problems at once; exit code 0 when there are none");
  check_verb->add_flag("--json", json, "as JSON");
  check_config->add_to(*check_verb);
  check_verb->callback([check_config, &json] {
    const config::Config c = check_config->load(config::Purpose::check, 0);
    run::check_schedule(c);
    run::open_data(c, data::Split::train);  // also: is it such data?
    json ? report::print_document({{"ok", true}}) : say(stdout, "the configuration is sound\n");
  });

  CLI::App* keys_verb = config_verb->add_subcommand(
      "keys", "every key with its default and meaning, as Markdown (docs/config.md)");
  keys_verb->callback([] { say_lines(stdout, config::keys_markdown()); });
}

}  // namespace tessera::app
