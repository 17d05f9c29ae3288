// The command line: which verb was given, what is wrong with the words, and exit codes
// (docs/cli.md). The verbs with their flags: app/verbs.h.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "app/help_verbs.h"
#include "app/verbs.h"
#include "base/as_error.h"
#include "base/build_info.h"
#include "base/check.h"
#include "base/memory_reserve.h"
#include "base/say.h"
#include "base/streams.h"
#include "config/flags.h"
#include "ranks/launch.h"
#include "report/document.h"

namespace {

using namespace tessera;

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
    const std::string_view ours = config::answer_to_foreign_flag(word);
    const std::string near =
        word.size() < 3 || word.size() > 64 || !ours.empty() ? "" : nearest(word, names);
    out += (out.empty() ? "there is no flag --" : "; nor --") + word +
           (!ours.empty()  ? " (here it is " + std::string(ours) + ")"
            : near.empty() ? ""
                           : " (did you mean --" + near + "?)");
  }
  return out;
}

// Says what is wrong with the command line, with the nearest verb or flag when it is a name.
std::string said(const CLI::App& app, int argc, char** argv, const CLI::ParseError& error) {
  const CLI::App* verb = &app;  // the innermost one that was given
  std::string path = "tessera";
  std::vector<std::string> verbs;
  int next = 1;
  for (bool known = true; known;) {
    known = false;
    verbs.clear();
    for (const CLI::App* inner : verb->get_subcommands(nullptr)) {
      verbs.push_back(inner->get_name());
      if (next >= argc || argv[next] != inner->get_name()) continue;
      verb = inner;
      path += " " + inner->get_name();
      ++next;
      known = true;
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

int dispatch(int argc, char** argv) {
  CLI::App app(
      "Tessera trains and runs image classifiers (ViT, Swin, ResNet). It runs on CPUs and "
      "NVIDIA GPUs, in one process or on many ranks. "
      "Manual: docs/cli.md.",
      "tessera");  // whatever name it was started by
  app.set_version_flag("--version", "tessera " + version());
  app.require_subcommand(1);
  app.fallthrough(false);
  app.formatter(app::eighty_columns());
  int code = 0;
  bool json = false;
  app::add_all_verbs(app, argv, json, code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    throw Error(ErrorKind::usage, said(app, argc, argv, error));
  }
  return code;
}

// Runs the program to its exit code.
int run_program(int argc, char** argv) {
  // Looked for here: what goes wrong may be the command line itself.
  const bool json = std::any_of(
      argv, argv + argc, [](const char* word) { return std::string_view(word) == "--json"; });
  try {
    const int code = dispatch(argc, argv);
    if (cannot_write_stdout())
      return fail(
          Error(ErrorKind::disk, "cannot write to stdout: it is closed, or its disk is full"),
          false);
    return code;
  } catch (const Error& error) {
    // An error before ranks can talk happens on all of them: the first one says it. Launchers end
    // the job with whoever fails first; the others let it be that one.
    if (run::launched_rank() == 0) return fail(error, json);
    std::this_thread::sleep_for(std::chrono::seconds(2));
    return error.exit_code();
  } catch (const std::exception& thrown) {
    return fail_without_memory(thrown, json);
  }
}

}  // namespace

int main(int argc, char** argv) {
  tessera::occupy_standard_streams();
  tessera::reserve_memory_for_the_way_out();
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on the size of files is then an error of the write,
                                  // which knows what to say
  // Training for days goes on when nobody reads what it says any more; `tessera models | head` ends
  // as every tool does.
  if (argc > 1 && (std::string_view(argv[1]) == "train" || std::string_view(argv[1]) == "study"))
    tessera::survive_closed_pipes();
  return tessera::run::tell_launcher(run_program(argc, argv));
}
