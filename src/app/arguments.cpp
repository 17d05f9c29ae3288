#include "app/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "base/say.h"
#include "config/later.h"
#include "config/print.h"
#include "report/console.h"

namespace tessera::app {

void KeyFlags::add_to(CLI::App& verb, const std::vector<std::string_view>& only) {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const config::Flag& flag = config::flags()[i];
    if (!only.empty() && std::find(only.begin(), only.end(), flag.name) == only.end()) continue;
    const std::string help =
        std::string(flag.help) + (config::comes_later(flag.key) ? " (not in this version)" : "");
    const std::string names =
        std::string(flag.name) + (flag.also.empty() ? "" : "," + std::string(flag.also));
    options_[i] =
        flag.metavar.empty()
            ? verb.add_flag(names, values_[i], help)
            : verb.add_option(names, values_[i], help)->type_name(std::string(flag.metavar));
  }
}

void KeyFlags::append_to(std::vector<config::Override>& overrides) const {
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (options_[i] && options_[i]->count() > 0)
      for (config::Override& o : config::all_from_flag(config::flags()[i], values_[i]))
        overrides.push_back(std::move(o));
}

void ConfigArguments::add_to(CLI::App& verb, const std::vector<std::string_view>& only) {
  verb.add_option("CONFIG", path, "a TOML file; every key can be changed with --set and flags");
  verb.add_option("--set", sets, "change one key: --set model.depth=4 (may be repeated)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  flags.add_to(verb, only);
}

std::vector<config::Override> ConfigArguments::overrides() const {
  std::vector<config::Override> out;
  for (const std::string& set : sets) out.push_back(config::from_set(set));
  flags.append_to(out);
  return out;
}

std::string ConfigArguments::given() const {
  std::vector<std::string> all;
  if (!path.empty()) all.push_back(path);
  for (const config::Override& o : overrides()) all.push_back(o.origin);
  return join(all, ", ");
}

config::Loaded ConfigArguments::load_all(config::Purpose purpose, int world) const {
  const std::vector<config::Override> overrides = this->overrides();
  return config::load_all(path.empty() ? std::nullopt : std::optional<std::string>(path), overrides,
                          purpose, world);
}

config::Config ConfigArguments::load(config::Purpose purpose, int world, bool table,
                                     bool speaks) const {
  config::Loaded loaded = load_all(purpose, world);
  for (const std::string& note : speaks ? loaded.notes : std::vector<std::string>{})
    report::say_note(note);
  if (table) say_lines(stderr, config::effective_text(loaded.deepspeed));
  return std::move(loaded.config);
}

void WeightsArguments::add_to(CLI::App& verb, run::WeightsOptions& options,
                              const std::vector<std::string_view>& keys) {
  verb.add_option("--weights", options.weights,
                  "a weight file, a run folder, a checkpoint or an exported folder")
      ->required()
      ->type_name("W");
  verb.add_option("--model", model,
                  "the preset, for weights that do not name their model (torchvision's, timm's)")
      ->type_name("NAME");
  verb.add_option("--set", sets,
                  "change one key, of it or of how it is run: --set data.normalize=imagenet (may "
                  "be repeated)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  flags.add_to(verb, keys);
}

void WeightsArguments::apply_to(run::WeightsOptions& options) const {
  if (!model.empty())
    options.overrides.push_back({.key = "model.name",
                                 .value = config::in_our_words("model.name", model),
                                 .origin = "--model " + model,
                                 .is_flag = true});
  for (const std::string& set : sets) options.overrides.push_back(config::from_set(set));
  flags.append_to(options.overrides);
}

}  // namespace tessera::app
