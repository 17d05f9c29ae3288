// Every key of the configuration, once: where it lives in Config, what it accepts, and what it
// means. Convention: this table drives reading, suggestions, printing and the documentation; adding
// a key is adding a row.
#pragma once

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/config.h"
#include "config/value.h"

namespace tessera::config {

struct Image {
  std::int64_t *h, *w;
};
using Ref = std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::int64_t>*,
                         Image, Span*, std::array<double, 2>*, ListOrWord*, std::vector<double>*>;

// The values that a key accepts. Numbers (also those in lists): low..high; words: `choices`, and
// `later` ones that are known but that validation refuses.
struct Accepts {
  double low = -std::numeric_limits<double>::infinity(),
         high = std::numeric_limits<double>::infinity();
  bool above_low = false, below_high = false;  // the bound itself is excluded
  std::string_view choices = {}, later = {};
  bool optional = false;  // a text that may be absent: it is then "" and not printed
  std::string_view
      yes = {},
      no = {};  // what true and false stand for, as TOML or a word; empty: neither is accepted
  std::string_view word = {};      // a whole number: this word stands for -1
  std::size_t longest = 4096;      // numbers of a list
  bool several = false;            // words with commas between them
  std::string_view standard = {};  // what docs say for a default that follows from other keys
};

struct Field {
  std::string_view section, key;
  Ref (*at)(Config&);
  Accepts accepts;
  std::string_view doc;
  std::string name() const { return std::string(section) + "." + std::string(key); }
};

const std::vector<Field>& fields();
// Whether the model's family reads this key: what is not read is neither printed nor accepted.
bool applies(const Field& field, const models::ModelConfig& model);
const Field* find_field(std::string_view section, std::string_view key);
std::vector<std::string> section_names();
std::vector<std::string> key_names(std::string_view section);

// Message and advice without a place; nothing when the value was taken.
struct Refusal {
  std::string message, advice;
};
std::optional<Refusal> assign(const Field& field, Config& config, const Value& value);

// The value as TOML writes it.
std::string toml_value(const Field& field, const Config& config);
// "whole number, 1 to 1024"
std::string accepts_text(const Field& field);
// One table per section for docs: key, what it accepts, default, meaning.
std::string keys_markdown();

}  // namespace tessera::config
