#include "app/help_verbs.h"

#include <memory>

#include "app/manual.h"
#include "app/verbs.h"
#include "base/build_info.h"
#include "base/check.h"
#include "base/say.h"
#include "report/console.h"

namespace tessera::app {
namespace {

constexpr int help_columns = 80;
constexpr std::size_t name_columns = 30;

// A name and what it means beside it, wrapped; a long name has a line of its own.
std::string beside(const std::string& name, const std::string& text) {
  std::string out = "  " + name;
  if (out.size() + 1 > name_columns)
    out += "\n" + std::string(name_columns, ' ');
  else
    out.resize(name_columns, ' ');
  std::string line;
  for (const std::string& word : CLI::detail::split(text, ' ')) {
    if (!line.empty() && line.size() + 1 + word.size() > help_columns - name_columns) {
      out += line + "\n" + std::string(name_columns, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + line + "\n";
}

class EightyColumns : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool positional) const override {
    const FlagText text = flag_text(*option);
    return beside(
        positional || text.longs.empty() ? make_option_name(option, positional) : text.names,
        text.help);
  }
  std::string make_subcommand(const CLI::App* verb) const override {
    const std::string text = verb->get_description();
    return beside(verb->get_name(), text.substr(0, text.find('\n')));
  }
  std::string make_description(const CLI::App* app) const override {
    return report::wrapped(app->get_description(), help_columns) + "\n";
  }
};

// The help of a path of verbs; with none, of the whole command line.
std::string help_of(const CLI::App& app, const std::vector<std::string>& path) {
  const CLI::App* verb = &app;
  std::string before;
  for (const std::string& word : path) {
    const CLI::App* found = nullptr;
    std::vector<std::string> names;
    for (const CLI::App* inner : verb->get_subcommands(nullptr)) {
      names.push_back(inner->get_name());
      if (inner->get_name() == word) found = inner;
    }
    if (!found) {
      const std::string near = nearest(word, names);
      throw Error(
          ErrorKind::usage, "there is no verb '" + word + "'", "tessera help",
          near.empty() ? "choose one of " + join(names, ", ") : "did you mean " + near + "?");
    }
    before += (before.empty() ? "" : " ") + verb->get_name();
    verb = found;
  }
  const std::string name = before + (before.empty() ? "" : " ") + verb->get_name();
  return verb->get_formatter()->make_help(verb, name, CLI::AppFormatMode::Normal);
}

}  // namespace

std::shared_ptr<CLI::Formatter> eighty_columns() { return std::make_shared<EightyColumns>(); }

void add_help_verb(CLI::App& app, char**, bool&, int&) {
  struct Given {
    std::vector<std::string> path;
    bool markdown = false, man = false;
    std::string shell;
  };
  const auto given = std::make_shared<Given>();
  CLI::App* help = app.add_subcommand("help", "the flags of a verb, and what they mean");
  help->add_option("VERB", given->path, "train, or ckpt export; none: all verbs");
  help->add_flag("--markdown", given->markdown, "all verbs and flags as Markdown (docs/cli.md)");
  help->add_flag("--man", given->man, "all of it as a page of the manual, tessera(1)");
  help->callback([given, &app] {
    say_lines(stdout, given->markdown ? markdown_manual(app)
                      : given->man    ? man_page(app, version())
                                      : help_of(app, given->path));
  });
  CLI::App* shells = app.add_subcommand("completion", "what completes verbs and flags in a shell");
  shells->add_option("SHELL", given->shell, "bash | zsh | fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  shells->callback([given, &app] { say_lines(stdout, completion(app, given->shell)); });
}

}  // namespace tessera::app
