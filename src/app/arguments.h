// Options that several verbs take on the command line: a configuration (a file, --set and flags
// that stand for keys), or weights with the ranks that run them. Convention: the objects outlive
// the parsing, which fills them.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/flags.h"
#include "config/reader.h"
#include "config/validate.h"
#include "verbs/verbs.h"

namespace tessera::app {

// Flags that stand for configuration keys, by name; all of them unless some are named.
class KeyFlags {
 public:
  void add_to(CLI::App& verb, const std::vector<std::string_view>& only = {});
  void append_to(std::vector<config::Override>& overrides) const;  // those that were given

 private:
  std::vector<std::string> values_ = std::vector<std::string>(config::flags().size());
  std::vector<CLI::Option*> options_ = std::vector<CLI::Option*>(config::flags().size());
};

struct ConfigArguments {
  std::string path;
  std::vector<std::string> sets;
  KeyFlags flags;

  void add_to(CLI::App& verb, const std::vector<std::string_view>& only = {});
  std::vector<config::Override> overrides() const;
  std::string given() const;  // all of it, as it was typed; "": nothing
  // `world`: the ranks that run; 0: nothing runs, or the configuration says how many to start.
  config::Loaded load_all(config::Purpose purpose, int world) const;
  // Notes about keys that were derived or ignored go to stderr; with --deepspeed so does the table
  // of effective values, if asked for.
  config::Config load(config::Purpose purpose, int world = 1, bool table = false,
                      bool speaks = true) const;
};

// --weights; --model and --set model.KEY, which describe the model when the weights do not; every
// other key, by --set or by a flag.
struct WeightsArguments {
  std::string model;
  std::vector<std::string> sets;
  KeyFlags flags;

  void add_to(CLI::App& verb, run::WeightsOptions& options,
              const std::vector<std::string_view>& keys = {"--dtype", "--threads", "--np",
                                                           "--oversubscribe", "--dp", "--tp",
                                                           "--pp", "--sp", "--comm", "--device"});
  void apply_to(run::WeightsOptions& options) const;  // after parsing
};

}  // namespace tessera::app
