#include "app/manual.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "config/flags.h"

namespace tessera::app {
namespace {

// "TEXT:{html,md}": the words in braces.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t from = type.find('{'), to = type.find('}');
  std::vector<std::string> out;
  if (from == type.npos || to == type.npos || to < from) return out;
  std::string word;
  for (const char c : type.substr(from + 1, to - from - 1) + ",") {
    if (c != ',') {
      word += c;
      continue;
    }
    if (!word.empty()) out.push_back(word);
    word.clear();
  }
  return out;
}

// The word that stands for the value: "N", "DIR"; none for words to choose from, which the help
// has.
std::string value_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  std::string type = option.get_type_name();
  type = type.substr(0, type.find_first_of(":{ "));
  if (type == "TEXT" || type.empty()) type = "WORD";
  if (type == "INT" || type == "UINT") type = "N";
  if (type == "FLOAT") type = "X";
  return " " + type;
}

}  // namespace

FlagText flag_text(const CLI::Option& option) {
  FlagText out;
  for (const std::string& name : option.get_lnames()) {
    out.longs.push_back("--" + name);
    out.names += (out.names.empty() ? "--" : ", --") + name;
  }
  if (option.get_positional()) out.names = option.get_name(true);
  if (out.longs.size() == 1 && option.get_lnames()[0] == "help") out.names = "-h, --help";
  out.takes_value = !option.get_positional() && option.get_items_expected_max() > 0;
  if (!option.get_positional()) out.names += value_of(option);
  out.help = option.get_description();
  if (const std::string given = option.get_default_str(); !given.empty() && out.takes_value)
    out.help += " (default: " + given + ")";
  out.choices = choices_of(option);
  return out;
}

namespace {

bool is_of_configuration(const FlagText& flag) {
  return std::any_of(config::flags().begin(), config::flags().end(), [&](const config::Flag& f) {
    return std::find(flag.longs.begin(), flag.longs.end(), f.name) != flag.longs.end();
  });
}

void collect_verbs(const CLI::App& app, const std::vector<std::string>& path,
                   std::vector<VerbText>& out) {
  const std::vector<const CLI::App*> inner = app.get_subcommands(nullptr);
  for (const CLI::App* verb : inner) {
    std::vector<std::string> own = path;
    own.push_back(verb->get_name());
    collect_verbs(*verb, own, out);
  }
  if (!inner.empty() || path.empty()) return;
  VerbText text{.path = path,
                .usage = join_path(path),
                .help = app.get_description(),
                .flags = {},
                .all_flags = {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty() || option->check_lname("help")) continue;
    FlagText flag = flag_text(*option);
    if (option->get_positional()) {
      const bool several = option->get_items_expected_max() > 1;
      text.usage += (option->get_required() ? " " : " [") + flag.names + (several ? "..." : "") +
                    (option->get_required() ? "" : "]");
    } else {
      if (option->get_required()) text.usage += " " + flag.names;
      text.all_flags.push_back(flag);
    }
    text.configured |= option->check_lname("deepspeed");
    text.flags.push_back(std::move(flag));
  }
  if (text.configured) std::erase_if(text.flags, is_of_configuration);
  out.push_back(std::move(text));
}

std::string in_table(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != text.npos; at += 2) text.insert(at, "\\");
  return text;
}

// Both manuals have them; the numbers are those of base/check.h.
constexpr std::pair<const char*, const char*> exit_codes[] = {
    {"0", "ok"},
    {"1",
     "`verify` or `ckpt diff` found a difference; a run of a `study` failed; `doctor` found "
     "something to mend"},
    {"2", "command line or configuration"},
    {"3", "data set or image"},
    {"4", "checkpoint, weights or golden"},
    {"5", "steps, or predictions, that are not finite"},
    {"6", "a rank hangs: nothing moved for `parallel.hang_s`"},
    {"7", "a rank was lost: killed, crashed or never started"},
    {"8", "out of memory, or of threads"},
    {"9", "disk full or not writable; a folder or file that cannot be read or looked at"},
    {"10", "a GPU, its driver or one of its libraries is missing or failed"},
    {"70", "a defect of ours"},
    {"75", "stopped on request; the same command goes on"},
    {"128 + n", "ended by signal n"}};

std::string without_ticks(std::string text) {
  std::erase(text, '`');
  return text;
}

// Text of a page of the manual: a dash is a minus, and no line begins with a dot.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '-' || c == '\\') out += '\\';
    out += c;
  }
  return out.starts_with(".") || out.starts_with("'") ? "\\&" + out : out;
}

}  // namespace

std::string join_path(const std::vector<std::string>& path) { return join(path, " "); }

std::vector<VerbText> verbs_of(const CLI::App& app) {
  std::vector<VerbText> out;
  collect_verbs(app, {}, out);
  return out;
}

std::string markdown_manual(const CLI::App& app) {
  std::string out =
      "Flags of a configuration, which the verbs marked (configuration) take beside a TOML file "
      "and\n"
      "`--set KEY=VALUE`:\n\n| flag | key | |\n|---|---|---|\n";
  for (const config::Flag& f : config::flags())
    out += fmt::format("| `{}{}{}{}` | {} | {} |\n", f.name,
                       f.also.empty() ? "" : ", " + std::string(f.also),
                       f.metavar.empty() ? "" : " ", in_table(std::string(f.metavar)),
                       f.key.find('.') == f.key.npos ? "" : fmt::format("`{}`", f.key),
                       in_table(std::string(f.help)));
  for (const VerbText& verb : verbs_of(app)) {
    out += fmt::format("\n### `tessera {}`{}\n\n{}.\n", verb.usage,
                       verb.configured ? " (configuration)" : "", verb.help);
    if (verb.flags.empty()) continue;
    out += "\n| | |\n|---|---|\n";
    for (const FlagText& flag : verb.flags)
      out += fmt::format("| `{}` | {} |\n", in_table(flag.names), in_table(flag.help));
  }
  out += "\n## Exit codes\n\n| code | meaning |\n|---|---|\n";
  for (const auto& [code, what] : exit_codes) out += fmt::format("| {} | {} |\n", code, what);
  return out;
}

std::string man_page(const CLI::App& app, const std::string& version) {
  std::string out = fmt::format(
      ".TH TESSERA 1 \"\" \"tessera {0}\" \"User Commands\"\n.SH NAME\ntessera \\- train and run "
      "image classifiers\n.SH SYNOPSIS\n.B tessera\n.I VERB\n[\\fICONFIG.toml\\fR] "
      "[\\fIFLAGS\\fR]\n.SH DESCRIPTION\n{1}\n.SH VERBS\n",
      roff(version), roff(app.get_description()));
  const auto flag_lines = [&](const std::vector<FlagText>& flags) {
    for (const FlagText& flag : flags)
      out += ".TP\n.B " + roff(flag.names) + "\n" + roff(flag.help) + "\n";
  };
  for (const VerbText& verb : verbs_of(app)) {
    out += ".SS tessera " + roff(verb.usage) + "\n" + roff(verb.help) + ".\n";
    if (verb.configured) out += "It also takes the flags of a configuration, below.\n";
    flag_lines(verb.flags);
  }
  out += ".SH FLAGS OF A CONFIGURATION\n";
  for (const config::Flag& f : config::flags())
    out += ".TP\n.B " +
           roff(fmt::format("{}{}{}{}", f.name, f.also.empty() ? "" : ", " + std::string(f.also),
                            f.metavar.empty() ? "" : " ", f.metavar)) +
           "\n" + roff(std::string(f.help)) + "\n";
  out += ".SH EXIT STATUS\n";
  for (const auto& [code, what] : exit_codes)
    out += fmt::format(".TP\n.B {}\n{}\n", code, roff(without_ticks(what)));
  return out + ".SH SEE ALSO\ndocs/cli.md and docs/config.md of the sources\n";
}

}  // namespace tessera::app
