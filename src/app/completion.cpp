// Completions for bash, zsh and fish.
#include <fmt/format.h>

#include <map>
#include <set>

#include "app/manual.h"
#include "base/check.h"

namespace tessera::app {
namespace {

// Words that may follow a path of verbs (""; " ckpt"), and words that may follow a flag.
struct Words {
  std::map<std::string, std::vector<std::string>> after;
  std::map<std::string, std::set<std::string>> values;
};

Words words_of(const CLI::App& app) {
  Words out;
  for (const VerbText& verb : verbs_of(app)) {
    std::string path;
    for (const std::string& word : verb.path) {
      std::vector<std::string>& known = out.after[path];
      if (std::find(known.begin(), known.end(), word) == known.end()) known.push_back(word);
      path += " " + word;
    }
    for (const FlagText& flag : verb.all_flags)
      for (const std::string& name : flag.longs) {
        out.after[path].push_back(name);
        out.values[name].insert(flag.choices.begin(), flag.choices.end());
      }
    out.after[path].emplace_back("--help");
  }
  return out;
}

// "case" of a shell: which words make a longer path. It is not called path: in zsh that is $PATH.
std::string path_case(const Words& words) {
  std::string known;
  for (const auto& [path, next] : words.after)
    if (!path.empty()) known += (known.empty() ? "\"" : "|\"") + path + "\"";
  return "case \"$verbs $word\" in " + known + ") verbs=\"$verbs $word\" ;; esac";
}

std::string bash(const Words& words) {
  std::string out =
      "# bash completion of tessera: source it, or put it into\n"
      "# ~/.local/share/bash-completion/completions/tessera\n"
      "_tessera() {\n  local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  local verbs=\"\" words=\"\" word\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n    " +
      path_case(words) + "\n  done\n  case \"$before\" in\n";
  for (const auto& [flag, values] : words.values)
    if (!values.empty())
      out +=
          fmt::format("    {}) words=\"{}\" ;;\n", flag, join({values.begin(), values.end()}, " "));
  out += "  esac\n  if [ -z \"$words\" ]; then\n    case \"$verbs\" in\n";
  for (const auto& [path, next] : words.after)
    out += fmt::format("      \"{}\") words=\"{}\" ;;\n", path, join(next, " "));
  return out +
         "    esac\n  fi\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "  [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- \"$cur\"))\n}\n"
         "complete -o filenames -F _tessera tessera\n";
}

std::string zsh(const Words& words) {
  std::string out =
      "#compdef tessera\n# zsh completion of tessera: put it as _tessera into a folder of $fpath\n"
      "_tessera() {\n  local verbs=\"\" word\n"
      "  for word in ${words[2,CURRENT-1]}; do\n    " +
      path_case(words) + "\n  done\n  case \"${words[CURRENT-1]}\" in\n";
  for (const auto& [flag, values] : words.values)
    if (!values.empty())
      out += fmt::format("    {}) compadd -- {}; return ;;\n", flag,
                         join({values.begin(), values.end()}, " "));
  out += "  esac\n  case \"$verbs\" in\n";
  for (const auto& [path, next] : words.after)
    out += fmt::format("    \"{}\") compadd -- {} ;;\n", path, join(next, " "));
  return out + "  esac\n  [ -z \"$verbs\" ] || _files\n}\n_tessera \"$@\"\n";
}

// Text in double quotes of fish, where a backtick is a letter like any other.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\' || c == '$') out += '\\';
    out += c;
  }
  return out + "\"";
}

// A function that says whether the verbs of the command line are exactly these: fish's own
// __fish_seen_subcommand_from takes the train of `bench train` for `train`.
std::string fish_after(const Words& words) {
  std::string known;
  for (const auto& [path, next] : words.after)
    if (!path.empty()) known += " '" + path + "'";
  return "function __tessera_after\n  set -l verbs \"\"\n"
         "  for word in (commandline -opc)[2..-1]\n"
         "    switch \"$verbs $word\"\n      case" +
         known +
         "\n        set verbs \"$verbs $word\"\n    end\n  end\n"
         "  test \"$verbs\" = \"$argv[1]\"\nend\n";
}

std::string fish(const CLI::App& app) {
  std::string out =
      "# fish completion of tessera: put it into ~/.config/fish/completions/tessera.fish\n" +
      fish_after(words_of(app));
  std::set<std::string> told;
  for (const VerbText& verb : verbs_of(app)) {
    std::string seen;
    const auto when = [&] { return "\"__tessera_after '" + seen + "'\""; };
    for (std::size_t i = 0; i < verb.path.size(); ++i) {
      const bool last = i + 1 == verb.path.size();
      if (told.insert(seen + " " + verb.path[i]).second)
        out += fmt::format("complete -c tessera -f -n {} -a {}{}\n", when(), verb.path[i],
                           last ? " -d " + quoted(verb.help) : "");
      seen += " " + verb.path[i];
    }
    for (const FlagText& flag : verb.all_flags)
      for (const std::string& name : flag.longs)
        out += fmt::format("complete -c tessera -n {} -l {}{}{} -d {}\n", when(), name.substr(2),
                           flag.takes_value ? " -r" : "",
                           flag.choices.empty() ? "" : " -f -a " + quoted(join(flag.choices, " ")),
                           quoted(flag.help));
  }
  return out;
}

}  // namespace

std::string completion(const CLI::App& app, const std::string& shell) {
  if (shell == "fish") return fish(app);
  const Words words = words_of(app);
  return shell == "zsh" ? zsh(words) : bash(words);
}

}  // namespace tessera::app
