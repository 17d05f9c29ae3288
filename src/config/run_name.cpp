#include "config/run_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>

#include "config/fields.h"

namespace tessera::config {
namespace {

constexpr std::size_t longest = 100;

bool is_plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '+';
}
// Characters that only separate: a name in which they became dashes still tells values apart.
bool separates(char c) { return std::string_view("-:=,[] \"%").find(c) != std::string_view::npos; }

// Everything else becomes single dashes, none of them at an end.
std::string as_name(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (is_plain(c))
      out += c;
    else if (!out.empty() && out.back() != '-')
      out += '-';
  while (out.ends_with('-')) out.pop_back();
  return out;
}

// FNV-1a: the same on every machine.
std::uint32_t hash_of(std::string_view text) {
  std::uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

// "lr" of optim.lr; "lr_steps" where run.steps has the same last part.
std::string short_key(const Field& field) {
  const auto same = [&](const Field& f) {
    return f.key == field.key && f.section != field.section;
  };
  const bool shared = std::any_of(fields().begin(), fields().end(), same) && field.section != "run";
  return shared ? fmt::format("{}_{}", field.section, field.key) : std::string(field.key);
}

// "zero2", "compress-int8", "shuffle", "no_overlap".
std::string word_of(const Field& field, const Config& config) {
  std::string key = short_key(field);
  const std::string value = toml_value(field, config);
  if (value == "true") return key;
  if (value == "false") return "no_" + key;
  const bool number =
      !value.empty() && std::isdigit(static_cast<unsigned char>(value.front())) != 0;
  return key + (number ? "" : "-") + value;
}

}  // namespace

bool changes_results(std::string_view key) {
  static constexpr std::array<std::string_view, 24> no_matter = {"run.threads",
                                                                 "run.threading",
                                                                 "run.out",
                                                                 "run.name",
                                                                 "run.csv",
                                                                 "run.tensorboard",
                                                                 "run.np_min",
                                                                 "run.restarts",
                                                                 "run.hostfile",
                                                                 "run.host_wait_s",
                                                                 "run.place",
                                                                 "run.oversubscribe",
                                                                 "data.workers",
                                                                 "checkpoint.every",
                                                                 "checkpoint.keep",
                                                                 "checkpoint.keep_best",
                                                                 "checkpoint.mtbf_h",
                                                                 "checkpoint.memory_every",
                                                                 "parallel.hang_s",
                                                                 "parallel.disk_s",
                                                                 "parallel.offload_optimizer",
                                                                 "parallel.offload_params",
                                                                 "parallel.offload_folder",
                                                                 "parallel.offload_mb"};
  return std::find(no_matter.begin(), no_matter.end(), key) == no_matter.end();
}

std::string default_run_name(const NameParts& parts) {
  const Config& c = parts.asked;
  const bool from_file = !parts.stem.empty();
  std::string whole =
      from_file ? parts.stem
                : (c.model.name.empty() ? c.model.family : c.model.name) + "-" + c.data.source;
  if (!parts.deepspeed_stem.empty()) whole += "-" + parts.deepspeed_stem;
  for (const Field& field : fields()) {
    const std::string key = field.name();
    const auto found = parts.given.find(key);
    const bool on_command_line =
        found != parts.given.end() && found->second.line == 0 && !found->second.origin.empty();
    const bool said_already = !from_file && (key == "model.name" || key == "data.source");
    if (on_command_line && changes_results(key) && !said_already) whole += "-" + word_of(field, c);
  }
  std::string name = as_name(whole);
  const bool lossy = std::any_of(whole.begin(), whole.end(),
                                 [](char ch) { return !is_plain(ch) && !separates(ch); });
  if (lossy || name.size() > longest) {
    const std::string hash = fmt::format("-{:08x}", hash_of(whole));
    name = as_name(name.substr(0, longest - hash.size())) + hash;
  }
  const bool dots = name.find_first_not_of('.') == name.npos;  // also ""
  return dots ? "run" : name;
}

}  // namespace tessera::config
