// The command line: verbs, flags and exit codes (docs/cli.md). Everything it does is one call into
// run/.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "app/arguments.h"
#include "app/bench_verb.h"
#include "app/study_verbs.h"
#include "base/as_error.h"
#include "base/build_info.h"
#include "base/check.h"
#include "base/say.h"
#include "base/streams.h"
#include "compile/pipeline.h"
#include "config/fields.h"
#include "config/flags.h"
#include "config/print.h"
#include "config/reader.h"
#include "config/validate.h"
#include "input/dataset.h"
#include "ranks/launch.h"
#include "report/document.h"
#include "train/run_folder.h"
#include "verbs/verbs.h"

namespace {

using namespace tessera;
using app::ConfigArguments;
using app::WeightsArguments;

// On stderr for people; with `json` and unless the verb printed its document, also as one on
// stdout.
int fail(const Error& error, bool json) {
  const char* no_color = std::getenv("NO_COLOR");
  const bool color = ::isatty(STDERR_FILENO) && !(no_color && *no_color);
  std::fputs(color ? "\033[1;31merror:\033[0m " : "error: ", stderr);
  say_lines(stderr, std::string(error.what()) + "\n");
  if (json && !report::document_printed()) report::print_document(report::error_document(error));
  return error.exit_code();
}

// The same of what libraries throw. Where there is not even memory for a message: the one that
// needs none.
int fail_without_memory(const std::exception& thrown, bool json) {
  try {
    return fail(as_error(thrown), json);
  } catch (const std::exception&) {
    constexpr std::string_view text = "error: out of memory\n";
    [[maybe_unused]] const ssize_t told = ::write(STDERR_FILENO, text.data(), text.size());
    return static_cast<int>(ErrorKind::memory);
  }
}

// The flags of `verb` that were given but do not exist, each with the nearest one that does.
std::string unknown_flags(const CLI::App& verb, int argc, char** argv, int first) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  std::string out;
  for (int i = first; i < argc; ++i) {
    std::string word = argv[i];
    if (!word.starts_with("--") || word.size() < 3) continue;
    word = word.substr(2, word.find('=') == word.npos ? word.npos : word.find('=') - 2);
    if (std::find(names.begin(), names.end(), word) != names.end()) continue;
    const std::string near = word.size() < 3 || word.size() > 64 ? "" : nearest(word, names);
    out += (out.empty() ? "there is no flag --" : "; nor --") + word +
           (near.empty() ? "" : " (did you mean --" + near + "?)");
  }
  return out;
}

// What is wrong with the command line, with the nearest verb or flag when it is a name.
std::string said(const CLI::App& app, int argc, char** argv, const CLI::ParseError& error) {
  const CLI::App* verb = &app;  // the innermost one that was given
  std::string path = "tessera";
  std::vector<std::string> verbs;
  int next = 1;
  for (bool known = true; known;) {
    known = false, verbs.clear();
    for (const CLI::App* inner : verb->get_subcommands(nullptr)) {
      verbs.push_back(inner->get_name());
      if (next >= argc || argv[next] != inner->get_name()) continue;
      verb = inner, path += " " + inner->get_name(), ++next, known = true;
      break;
    }
  }
  const std::string word = next < argc ? argv[next] : "";
  const std::string help = "\n   help: `" + path + " --help` lists what there is";
  if (!verbs.empty() && word.empty())
    return "a verb is required after `" + path + "`: one of " + join(verbs, ", ") + "\n   help: `" +
           path + " --help`, and `" + path + " VERB --help` for each";
  if (!verbs.empty() && !word.starts_with("-")) {
    const std::string near = nearest(word, verbs);
    return "there is no verb '" + word + "'" + (verb == &app ? "" : " of `" + path + "`") +
           "\n   help: " +
           (near.empty() ? "choose one of " + join(verbs, ", ") : "did you mean " + near + "?");
  }
  const std::string flags = unknown_flags(*verb, argc, argv, next);
  return (flags.empty() ? std::string(error.what()) : flags) + help;
}

// data get | verify | stats. The options live as long as the callbacks.
void add_data_verbs(CLI::App& app, bool& json, int& code) {
  CLI::App* data_verb = app.add_subcommand("data", "fetch a data set, check it, or describe it");
  data_verb->require_subcommand(1);
  const auto sub = [&](const char* name, const char* help) {
    CLI::App* verb = data_verb->add_subcommand(name, help);
    verb->add_flag("--json", json, "print one JSON document on stdout");
    return verb;
  };
  auto get = std::make_shared<run::DataGetOptions>();
  CLI::App* get_verb = sub("get", "download, check and unpack; goes on where it was interrupted");
  get_verb->add_option("NAME", get->name, "cifar10 | cifar100")->required();
  get_verb->add_option("--out", get->out, "folder to put it in (default: data)")->type_name("DIR");
  get_verb->add_option("--url", get->url, "another address of the same archive")->type_name("URL");
  get_verb->add_option("--sha256", get->sha256, "checksum of another archive at that address")
      ->type_name("HEX");
  get_verb->add_option("--md5", get->md5, "the same where only an MD5 is known")->type_name("HEX");
  get_verb->callback([get, &json, &code] { get->json = json, code = run::data_get(*get); });

  const auto reading = [&](const char* name, const char* help,
                           int (*act)(const config::Config&, bool)) {
    CLI::App* verb = sub(name, help);
    auto spec = std::make_shared<std::string>();
    auto arguments = std::make_shared<ConfigArguments>();
    verb->add_option("SPEC", *spec, "cifar10:DIR | cifar100:DIR | folder:DIR | synthetic...")
        ->required();
    verb->add_option("--set", arguments->sets, "change one key: --set data.val_fraction=0.2")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
    verb->callback([=, &json, &code] {
      std::vector<config::Override> overrides;
      for (const std::string& set : arguments->sets) overrides.push_back(config::from_set(set));
      overrides.push_back({"data.source", *spec, *spec, true});
      code = act(config::load(std::nullopt, overrides, config::Purpose::other), json);
    });
  };
  reading("verify", "read every image; exit code 3 when one is bad", &run::data_verify);
  reading("stats", "images per class, sizes, mean and deviation per channel", &run::data_stats);
}

int dispatch(int argc, char** argv) {
  CLI::App app(
      "Tessera trains and runs image classifiers (ViT, Swin, ResNet). It runs on CPUs and "
      "NVIDIA GPUs, in one process or on many ranks. "
      "Manual: docs/cli.md.",
      "tessera");  // whatever name it was started by
  app.set_version_flag("--version", "tessera " + version());
  app.require_subcommand(1);
  app.fallthrough(false);
  app.get_formatter()->column_width(34);
  int code = 0;
  bool json = false;
  auto verb = [&](const char* name, const char* help) {
    CLI::App* sub = app.add_subcommand(name, help);
    sub->add_flag("--json", json, "print one JSON document on stdout");
    return sub;
  };

  ConfigArguments train_config;
  run::TrainOptions train;
  CLI::App* train_verb =
      verb("train", "train a model; goes on from the newest checkpoint of its run folder");
  train_config.add_to(*train_verb);
  train_verb->add_flag("--fresh", train.fresh, "start over even if the run folder holds a run");
  train_verb->add_flag("--quiet", train.quiet, "no progress on stderr");
  train_verb->callback([&] {
    train.given = train_config.path;
    train.json = json;
    // Ranks that a launcher started are counted; alone, the configuration says how many to start.
    const int started = run::launched_ranks();
    const bool speaks = run::says_notes();
    const config::Config c = train_config.load(config::Purpose::train, started > 1 ? started : 0,
                                               speaks && !train.quiet, speaks);
    run::check_schedule(c);
    code = run::on_ranks(c, argv, [&](comm::Comm* world) { return run::train(c, train, world); });
  });

  run::EvalOptions eval;
  WeightsArguments eval_weights;
  CLI::App* eval_verb = verb("eval", "loss, top-1, top-5 and a table per class");
  eval_weights.add_to(*eval_verb, eval);
  eval_verb
      ->add_option("--data", eval.data,
                   "synthetic | synthetic:HxWxC,CLASSES | cifar10:DIR | cifar100:DIR | folder:DIR")
      ->required()
      ->type_name("SPEC");
  eval_verb->add_option("--batch", eval.batch, "images at a time, of all ranks together")
      ->check(CLI::Range(1, 65536));
  eval_verb->add_option(
      "--seed", eval.seed,
      "seed of synthetic data, and of the part of a folder that is kept for testing");
  eval_verb->add_option("--val-fraction", eval.val_fraction, "that part's size")
      ->check(CLI::Range(0.0, 0.999));
  eval_verb->add_option("--test-size", eval.test_size, "images of synthetic data")
      ->check(CLI::Range(1, 100000000));
  eval_verb
      ->add_option(
          "--tta", eval.tta,
          "flip: also report top-1 of the mean prediction of each image and its mirror image")
      ->check(CLI::IsMember({"none", "flip"}));
  eval_verb->callback(
      [&] { eval_weights.apply_to(eval), eval.json = json, code = run::evaluate(eval, argv); });

  run::PredictOptions predict;
  WeightsArguments predict_weights;
  CLI::App* predict_verb = verb(
      "predict", "the likeliest labels of each image: a line on a terminal, JSON lines in a pipe");
  predict_weights.add_to(*predict_verb, predict);
  predict_verb->add_option("IMAGE", predict.images, "PNG or JPEG files")->required();
  predict_verb->add_option("--top", predict.top, "how many labels")->check(CLI::Range(1, 1000));
  predict_verb
      ->add_option("--batch", predict.batch,
                   "images at a time, of all ranks together (8, or one for each dp rank)")
      ->check(CLI::Range(1, 65536));
  predict_verb->callback([&] {
    predict_weights.apply_to(predict), predict.json = json,
                                       predict.table = run::prints_to_terminal();
    code = run::predict(predict, argv);
  });

  run::VerifyOptions verify;
  CLI::App* verify_verb =
      verb("verify", "compare forward and backward with another framework's numbers");
  verify_verb
      ->add_option("GOLDEN", verify.golden, "a safetensors file made by tools/make_goldens.py")
      ->required();
  verify_verb->add_option("--dtype", verify.dtype, "f64 | f32 | bf16 (default: as stored)")
      ->check(CLI::IsMember({"f32", "bf16", "f64"}));
  verify_verb->add_option("--threads", verify.threads, "cores to use (default: all)")
      ->check(CLI::Range(1, 4096));
  verify_verb->add_option("--device", verify.device, "cpu or cuda");
  verify_verb->callback([&] { verify.json = json, code = run::verify(verify); });

  app::add_bench_verb(app, argv, json, code);

  ConfigArguments explain_config;
  run::ExplainOptions explain;
  bool no_program = false;
  CLI::App* explain_verb = verb(
      "explain", "program, plan, communication, memory and FLOPs of any layout, without running");
  explain_config.add_to(*explain_verb);
  explain_verb->add_option("--for", explain.goal, "train | infer")
      ->check(CLI::IsMember({"train", "infer"}));
  explain_verb
      ->add_option("--dump-passes", explain.dump_passes,
                   "write the program after each pass to DIR/NN_<pass>.ir")
      ->type_name("DIR");
  explain_verb->add_option("--disable", explain.disabled, "leave out a pass (may be repeated)")
      ->type_name("PASS");
  explain_verb
      ->add_option("--rank", explain.rank, "whose plan, messages and memory are shown (default: 0)")
      ->type_name("R");
  explain_verb
      ->add_option("--schedule-svg", explain.schedule_svg,
                   "write the pipeline's schedule as a picture")
      ->type_name("FILE");
  explain_verb
      ->add_option("--run", explain.run,
                   "the configuration of a run folder, its pipeline also as it was measured")
      ->type_name("RUN");
  explain_verb->add_flag("--before", explain.before,
                         "also print the program before it was placed on the ranks");
  explain_verb->add_flag("--plan", explain.plan, "also print every step with its storage");
  explain_verb->add_flag("--no-program", no_program, "only the summary");
  explain_verb->callback([&] {
    if (!explain.run.empty()) {
      if (const std::string given = explain_config.given(); !given.empty())
        throw Error(ErrorKind::usage,
                    "--run takes the configuration of the run, and " + given + " was given, too",
                    "--run " + explain.run,
                    "leave it out, or explain RUN/resolved.toml with changes instead of --run");
      explain_config.path = run::configuration_of_run(explain.run);
    }
    explain.program = !no_program && explain.run.empty();
    explain.json = json;
    const config::Purpose purpose =
        explain.goal == "train" ? config::Purpose::other : config::Purpose::inference;
    code = run::explain(explain_config.load(purpose, 0), explain);
  });

  run::CkptOptions ckpt;
  CLI::App* ckpt_verb =
      app.add_subcommand("ckpt", "look at, prove, export and compare checkpoints");
  ckpt_verb->require_subcommand(1);
  auto ckpt_sub = [&](const char* name, const char* help, const char* path,
                      int (*call)(const run::CkptOptions&)) {
    CLI::App* sub = ckpt_verb->add_subcommand(name, help);
    sub->add_flag("--json", json, "print one JSON document on stdout");
    sub->add_option(path, ckpt.path, "a run folder or a checkpoint (RUN/ckpt/step-N)")->required();
    sub->callback([&, call] { ckpt.json = json, code = call(ckpt); });
    return sub;
  };
  ckpt_sub("ls", "the checkpoints of a run: step, epoch, bytes, when, valid, best", "RUN",
           run::ckpt_list);
  ckpt_sub("verify", "check every hash; exit code 4 when one does not fit", "RUN|CKPT",
           run::ckpt_verify);
  CLI::App* diff_verb =
      ckpt_sub("diff", "tensor by tensor; exit code 0 equal, 1 different", "A", run::ckpt_diff);
  diff_verb
      ->add_option("B", ckpt.other,
                   "the other one; weight files and exported folders are taken too")
      ->required();
  CLI::App* export_verb =
      ckpt_sub("export", "weights as a folder that others read", "RUN|CKPT", run::ckpt_export);
  export_verb->add_option("--out", ckpt.out, "folder to write")->required()->type_name("DIR");
  export_verb->add_option("--naming", ckpt.naming, "torchvision | timm")
      ->check(CLI::IsMember({"torchvision", "timm"}));
  export_verb->add_option("--dtype", ckpt.dtype, "f32 | f64")->check(CLI::IsMember({"f32", "f64"}));
  export_verb->add_flag(
      "--best", ckpt.best,
      "of a run folder: the checkpoint with the best test top-1 instead of the newest");
  add_data_verbs(app, json, code);

  app::add_study_verbs(app, code);

  CLI::App* models_verb = verb("models", "the presets, with parameters and FLOPs");
  models_verb->callback([&] { code = run::list_models(json); });

  bool verbose = false;
  CLI::App* version_verb = verb("version", "this build, and what it finds on this machine");
  version_verb->add_flag("--verbose", verbose, "also cores, driver, GPUs and libraries");
  version_verb->callback([&] { code = run::print_version(verbose, json); });

  CLI::App* config_verb =
      app.add_subcommand("config", "look at a configuration without running it");
  config_verb->require_subcommand(1);
  ConfigArguments show_config, check_config;
  CLI::App* show_verb = config_verb->add_subcommand("show", "every value, resolved");
  show_verb->add_flag("--json", json, "as JSON");
  show_config.add_to(*show_verb);
  show_verb->callback([&] {
    const config::Loaded loaded = show_config.load_all(config::Purpose::other, 0);
    for (const std::string& note : loaded.notes) say(stderr, "note: {}\n", note);
    if (json) return say_json(stdout, config::to_json(loaded));
    for (const std::string& line : config::split(config::effective_text(loaded.deepspeed), '\n'))
      say(stdout, "# {}\n", line);
    say_lines(stdout, (loaded.deepspeed.empty() ? "" : "\n") + config::to_toml(loaded.config));
  });
  CLI::App* check_verb =
      config_verb->add_subcommand("check", "all problems at once; exit code 0 when there are none");
  check_verb->add_flag("--json", json, "as JSON");
  check_config.add_to(*check_verb);
  check_verb->callback([&] {
    const config::Config c = check_config.load(config::Purpose::check, 0);
    run::check_schedule(c);
    run::open_data(c, data::Split::train);  // also: is it such data?
    json ? report::print_document({{"ok", true}}) : say(stdout, "the configuration is sound\n");
  });

  CLI::App* keys_verb = config_verb->add_subcommand(
      "keys", "every key with its default and meaning, as Markdown (docs/config.md)");
  keys_verb->callback([&] { say_lines(stdout, config::keys_markdown()); });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    throw Error(ErrorKind::usage, said(app, argc, argv, error));
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  using tessera::Error, tessera::ErrorKind;
  tessera::occupy_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on the size of files is then an error of the write,
                                  // which knows what to say
  // What trains for days goes on when nobody reads what it says any more; `tessera models | head`
  // ends as every tool does.
  if (argc > 1 && (std::string_view(argv[1]) == "train" || std::string_view(argv[1]) == "study"))
    tessera::survive_closed_pipes();
  // Looked for here: what goes wrong may be the command line itself.
  const bool json = std::any_of(
      argv, argv + argc, [](const char* word) { return std::string_view(word) == "--json"; });
  try {
    const int code = dispatch(argc, argv);
    if (tessera::cannot_write_stdout())
      return fail(Error(ErrorKind::disk, "cannot write to stdout: is it closed, or its disk full?"),
                  false);
    return code;
  } catch (const Error& error) {
    // What goes wrong before ranks can talk goes wrong on all of them: the first one says it.
    // Launchers end the job with whoever fails first; the others let it be that one.
    if (tessera::run::launched_rank() == 0) return fail(error, json);
    std::this_thread::sleep_for(std::chrono::seconds(2));
    return error.exit_code();
  } catch (const std::exception& thrown) {
    return fail_without_memory(thrown, json);
  }
}
