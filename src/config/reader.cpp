#include "config/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "base/threads.h"  // defines: available_cores, launched_here
#include "config/fields.h"

namespace tessera::config {
namespace {

// Ranks that share this machine's cores: what a launcher says, or all.
std::int64_t ranks_here(const Config& config) {
  if (const int told = launched_here(); told > 0) return told;
  return std::max<std::int64_t>(1, config.run.np);
}

constexpr std::size_t largest_file = 1 << 20;

struct Setting {
  const Field* field;
  Value value;
  Place place;
  std::string layer;  // default | config | deepspeed | flag, as in the table of effective values
};

// Suggestions look at short names only: edit distance against a megabyte helps nobody.
std::string near(std::string_view word, const std::vector<std::string>& names) {
  return word.size() > 64 ? "" : nearest(word, names);
}

// Where else a key of this name lives: "model.depth".
std::string elsewhere(std::string_view key) {
  for (const Field& f : fields())
    if (f.key == key) return f.name();
  return "";
}

class Reader {
 public:
  void file(const Document& doc) {
    layer_ = "config";
    problems_.insert(problems_.end(), doc.problems.begin(), doc.problems.end());
    syntax_ok_ = doc.problems.empty();
    const std::vector<std::string> sections = section_names();
    const auto known = [&](const std::string& name) {
      return std::find(sections.begin(), sections.end(), name) != sections.end();
    };
    for (const Entry& s : doc.sections)
      if (!known(s.section)) unknown_section(s, sections);
    for (const Entry& e : doc.entries) {
      if (e.section.empty() && known(e.key))
        problems_.push_back(
            {e.value_place,
             fmt::format("{}: expected a section, found {}", e.key, describe(e.value)),
             "write [" + e.key + "] and its keys below"});
      else if (e.section.empty()) {
        const std::string home = elsewhere(e.key);
        problems_.push_back({e.key_place,
                             fmt::format("'{}' stands outside any section", clean(e.key, 40)),
                             home.empty() ? "" : "did you mean " + home + "?"});
      } else if (known(e.section)) {
        setting(e.section, e.key, e.value, e.key_place, e.value_place);
      }
    }
  }

  void command_line(const Override& o) {
    const Place place{o.origin};
    layer_ = "flag";
    if (o.key.empty()) {
      problems_.push_back({place, "expected key=value", "for example --set model.depth=4"});
      return;
    }
    const auto dot = o.key.find('.');
    const std::string section = o.key.substr(0, dot),
                      key = dot == o.key.npos ? "" : o.key.substr(dot + 1);
    const std::vector<std::string> sections = section_names();
    if (dot == o.key.npos) {
      const std::string home = elsewhere(section);
      problems_.push_back(
          {place, fmt::format("'{}' is not a key", clean(section, 40)),
           home.empty() ? "keys look like model.depth" : "did you mean " + home + "?"});
    } else if (std::find(sections.begin(), sections.end(), section) == sections.end()) {
      unknown_section({.section = section,
                       .key = "",
                       .value = {},
                       .section_place = place,
                       .key_place = place,
                       .value_place = place},
                      sections);
    } else {
      setting(section, key, value_of(find_field(section, key), o.value), place, place);
    }
  }

  // Under the TOML file: what DeepSpeed takes for keys that its file leaves out.
  void deepspeed_defaults(const DeepSpeedReading& reading) { take(reading.defaults, "default"); }

  // Over the TOML file. A batch is one statement: where the file makes it, that of the TOML file is
  // gone.
  void deepspeed(const DeepSpeedReading& reading) {
    problems_.insert(problems_.end(), reading.problems.begin(), reading.problems.end());
    syntax_ok_ = syntax_ok_ && reading.readable;
    for (const Problem& warning : reading.warnings) notes_.push_back(in_one_line(warning));
    const auto about_batch = [](const DeepSpeedSetting& s) { return s.key.starts_with("batch."); };
    if (std::any_of(reading.settings.begin(), reading.settings.end(), about_batch))
      std::erase_if(settings_, [&](const Setting& s) {
        const bool gone = s.field->section == "batch" && s.layer == "config";
        if (gone)
          notes_.push_back(in_one_line(
              {s.place, s.field->name() + " gives way to the batch of the DeepSpeed file", ""}));
        return gone;
      });
    take(reading.settings, "deepspeed");
  }

  Loaded finish(const Inputs& inputs, const DeepSpeedReading& reading) {
    Loaded out;
    Config& config = out.config;
    if (inputs.model) config.model = *inputs.model;
    start_model(config);
    config.run.threads = std::min(available_cores(), 4096);
    for (const Setting& s : settings_) {
      const std::string name = s.field->name();
      const std::string before =
          s.layer == "deepspeed" && layers_[name] == "config" ? toml_value(*s.field, config) : "";
      given_[name] = s.place;
      layers_[name] = s.layer;
      if (std::optional<Refusal> refusal = assign(*s.field, config, s.value)) {
        problems_.push_back({s.place, std::move(refusal->message), std::move(refusal->advice)});
        refused_.insert(name);
      }
      if (const std::string after = toml_value(*s.field, config);
          !before.empty() && before != after)
        notes_.push_back(in_one_line(
            {s.place, fmt::format("{} = {} wins over {} of the TOML file", name, after, before),
             ""}));
    }
    const bool with_deepspeed = !inputs.deepspeed_file.empty();
    if (syntax_ok_) {
      const auto stem = [](const std::string& file) {
        return std::filesystem::path(file).stem().string();
      };
      const Situation now{.purpose = inputs.purpose,
                          .stem = stem(inputs.toml_file),
                          .world = inputs.world,
                          .deepspeed = with_deepspeed,
                          .deepspeed_stem = stem(inputs.deepspeed_file)};
      Outcome outcome = resolve(config, given_, refused_, now);
      for (Problem& p : outcome.problems) problems_.push_back(std::move(p));
      if (given_.find("run.threads") == given_.end())
        config.run.threads = std::max<std::int64_t>(1, config.run.threads / ranks_here(config));
      notes_.insert(notes_.end(), outcome.notes.begin(), outcome.notes.end());
    }
    if (!problems_.empty()) {
      const std::string files =
          inputs.toml_file + (with_deepspeed
                                  ? (inputs.toml_file.empty() ? "--deepspeed " : " --deepspeed ") +
                                        inputs.deepspeed_file
                                  : "");
      throw ConfigError(
          std::move(problems_),
          {{inputs.toml_file, inputs.toml}, {inputs.deepspeed_file, inputs.deepspeed}},
          files.empty()
              ? "`tessera config show` prints every key and its value"
              : "`tessera config check " + clean(files, 200) + "` re-checks without running");
    }
    if (with_deepspeed) out.deepspeed = effective_values(config, reading, layers_);
    if (reading.micro_per_gpu)
      notes_.push_back(
          in_one_line({reading.micro_per_gpu_place, judge(*reading.micro_per_gpu, config), ""}));
    out.notes = std::move(notes_);
    out.given = std::move(given_);
    return out;
  }

 private:
  void take(const std::vector<DeepSpeedSetting>& list, const char* layer) {
    layer_ = layer;
    for (const DeepSpeedSetting& s : list) {
      const auto dot = s.key.find('.');
      setting(s.key.substr(0, dot), s.key.substr(dot + 1), s.value, s.place, s.place);
    }
  }

  // `micro_batch_per_gpu` is read by many people and by no version of DeepSpeed.
  static std::string judge(std::int64_t micro, const Config& c) {
    const std::string is_none = fmt::format(
        "micro_batch_per_gpu = {} is no key of DeepSpeed's (train_micro_batch_size_per_gpu is)",
        micro);
    const std::string used = fmt::format("{} = {} x {} x {}", c.batch.global, c.batch.micro,
                                         c.batch.accumulate, c.parallel.dp);
    if (micro == c.batch.micro) return is_none + "; it fits: " + used;
    return fmt::format("{} and is ignored: {} x {} x {} is not {}; used: {}", is_none, micro,
                       c.batch.accumulate, c.parallel.dp, c.batch.global, used);
  }

  void unknown_section(const Entry& s, const std::vector<std::string>& sections) {
    const std::string close = near(s.section, sections);
    problems_.push_back(
        {s.section_place, fmt::format("there is no section [{}]", clean(s.section, 40)),
         close.empty() ? "choose " + alternatives(sections) : "did you mean [" + close + "]?"});
  }

  void setting(const std::string& section, const std::string& key, const Value& value,
               const Place& key_place, const Place& value_place) {
    if (const Field* field = find_field(section, key)) {
      settings_.push_back({.field = field, .value = value, .place = value_place, .layer = layer_});
      return;
    }
    const std::string name = section + "." + key;
    const std::string close = near(key, key_names(section)), home = elsewhere(key);
    problems_.push_back({key_place, fmt::format("there is no key {}", clean(name, 60)),
                         !home.empty() ? "did you mean " + home + "?"
                         : !close.empty()
                             ? "did you mean " + close + "?"
                             : "[" + section + "] has " + join(key_names(section), ", ")});
  }

  // A text key takes the value as typed (quotes are allowed); everything else is read as TOML.
  static Value value_of(const Field* field, const std::string& text) {
    Config scratch;
    const bool is_text =
        field != nullptr && std::holds_alternative<std::string*>(field->at(scratch));
    const bool quotes = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
                        text.back() == text.front();
    Value v;
    v.kind = Value::Kind::text;
    v.text = text;
    if (!is_text || quotes) v = read_value(text);
    if (v.kind == Value::Kind::text && field != nullptr &&
        std::holds_alternative<double*>(field->at(scratch))) {
      const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(),
                                                v.real);  // ".5" is a number to a shell user
      if (code == std::errc() && stop == text.data() + text.size()) v.kind = Value::Kind::real;
    }
    return v;
  }

  void start_model(Config& config) {
    const Setting *name = nullptr, *family = nullptr;
    for (const Setting& s : settings_)
      if (s.field->section == "model" && s.value.kind == Value::Kind::text &&
          !s.value.text.empty()) {
        if (s.field->key == "name") name = &s;
        if (s.field->key == "family") family = &s;
      }
    if (name == nullptr && family == nullptr) return;
    try {
      config.model = base_model(name ? name->value.text : "", family ? family->value.text : "");
    } catch (const Error& e) {
      problems_.push_back({name->place, e.message, e.hint});
      refused_.insert("model.name");
    }
  }

  std::vector<Setting> settings_;
  std::vector<Problem> problems_;
  std::vector<std::string> notes_;
  Given given_;
  std::map<std::string, std::string, std::less<>> layers_;  // of each key: the one that won
  std::set<std::string> refused_;
  std::string layer_;  // whose settings are being taken
  bool syntax_ok_ = true;
};

[[noreturn]] void refuse_file(const std::string& path, std::string message, std::string advice) {
  throw ConfigError({{{path}, std::move(message), std::move(advice)}}, {},
                    "`tessera config show` prints a configuration to start from");
}

std::string read_file(const std::string& path, const char* kind) {
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (status.type() == std::filesystem::file_type::none)
    refuse_file(path, "the file cannot be looked at: " + code.message(),
                "check the permissions of its folders");
  if (!std::filesystem::exists(status)) refuse_file(path, "there is no such file", "");
  if (std::filesystem::is_directory(status))
    refuse_file(path, std::string("expected a ") + kind + " file, found a folder", "");
  std::ifstream in(path, std::ios::binary);
  if (!in) refuse_file(path, "the file cannot be opened", "check its permissions");
  std::string text(largest_file + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) refuse_file(path, "the file cannot be read", "");
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

}  // namespace

models::ModelConfig base_model(const std::string& name, const std::string& family) {
  if (name.empty()) {
    const models::Family* known = models::find_family(family);
    models::ModelConfig model = models::preset(known ? known->preset : "vit_b_16");
    model.name = "";
    if (!family.empty()) model.family = family;
    return model;
  }
  if (name.size() > 64 || clean(name) != name)  // preset() repeats it
    throw Error(ErrorKind::usage, "there is no model '" + clean(name, 40) + "'", "",
                "`tessera models` lists all");
  return models::preset(name);
}

Loaded load_inputs(const Inputs& inputs) {
  for (const auto& [text, file] : {std::pair(inputs.toml, inputs.toml_file),
                                   std::pair(inputs.deepspeed, inputs.deepspeed_file)})
    if (text.size() > largest_file)
      refuse_file(file, "the file is larger than 1 MiB, the most that a configuration may have",
                  "");
  Reader reader;
  const bool with_deepspeed = !inputs.deepspeed_file.empty();
  const DeepSpeedReading reading =
      with_deepspeed ? read_deepspeed(inputs.deepspeed, inputs.deepspeed_file) : DeepSpeedReading{};
  reader.deepspeed_defaults(reading);
  if (!inputs.toml_file.empty()) reader.file(read_toml(inputs.toml, inputs.toml_file));
  reader.deepspeed(reading);
  for (const bool flag : {false, true})
    for (const Override& o : inputs.overrides)
      if (o.is_flag == flag) reader.command_line(o);
  return reader.finish(inputs, reading);
}

Loaded load_all_text(std::string_view text, const std::string& file,
                     const std::vector<Override>& overrides, Purpose purpose, int world) {
  Inputs inputs{.toml = text,
                .toml_file = file,
                .deepspeed = "",
                .deepspeed_file = "",
                .overrides = {},
                .purpose = purpose,
                .world = world};
  std::string deepspeed;
  for (const Override& o : overrides) {
    if (!o.is_flag || o.key != "deepspeed") {
      inputs.overrides.push_back(o);
      continue;
    }
    std::error_code ignored;
    const std::optional<std::string> decoded =
        std::filesystem::exists(o.value, ignored) ? std::nullopt : decode_base64(o.value);
    const bool inline_text = decoded && decoded->find('{') != decoded->npos && is_utf8(*decoded);
    if (o.value.empty())
      refuse_file("--deepspeed", "the path of the DeepSpeed configuration is empty", "");
    deepspeed = inline_text ? *decoded : read_file(o.value, "JSON");
    inputs.deepspeed_file = inline_text ? "--deepspeed" : o.value;
  }
  inputs.deepspeed = deepspeed;
  return load_inputs(inputs);
}

Loaded load_all(const std::optional<std::string>& path, const std::vector<Override>& overrides,
                Purpose purpose, int world) {
  if (!path) return load_all_text("", "", overrides, purpose, world);
  if (path->empty()) refuse_file("", "the path of the configuration is empty", "");
  return load_all_text(read_file(*path, "TOML"), *path, overrides, purpose, world);
}

Config load_text(std::string_view text, const std::string& file,
                 const std::vector<Override>& overrides, Purpose purpose, int world) {
  return load_all_text(text, file, overrides, purpose, world).config;
}

Config load(const std::optional<std::string>& path, const std::vector<Override>& overrides,
            Purpose purpose, int world) {
  return load_all(path, overrides, purpose, world).config;
}

}  // namespace tessera::config
