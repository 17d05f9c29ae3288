// The verbs and flags of a command line as text: a page of the manual, Markdown, and words for the
// completions of shells. Convention: everything follows from the CLI::App; nothing is written
// twice.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tessera::app {

struct FlagText {
  std::string names;  // "--global-batch, --batch-size N"
  std::string help;   // with its default
  std::vector<std::string> longs, choices;
  bool takes_value = false;
};
FlagText flag_text(const CLI::Option& option);

struct VerbText {
  std::vector<std::string> path;  // {"ckpt", "ls"}
  std::string usage, help;        // "ckpt ls RUN"
  bool configured = false;        // takes the flags of a configuration, which are not in `flags`
  std::vector<FlagText> flags;
  std::vector<FlagText> all_flags;  // these included
};
// Verbs that do something, in the order of the command line.
std::vector<VerbText> verbs_of(const CLI::App& app);
std::string join_path(const std::vector<std::string>& path);

std::string markdown_manual(const CLI::App& app);
std::string man_page(const CLI::App& app, const std::string& version);
// bash | zsh | fish
std::string completion(const CLI::App& app, const std::string& shell);

}  // namespace tessera::app
