// TOML and JSON from the field table, and the model section as JSON both ways.
#include "config/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "config/batch.h"
#include "config/fields.h"
#include "config/reader.h"

namespace tessera::config {
namespace {

using Json = nlohmann::ordered_json;

bool foreign(const Field& f, const Config& c) { return !applies(f, c.model); }
bool unset(const Field& f, const Config& c) {
  return f.accepts.optional && toml_value(f, c) == "\"\"";
}

struct ToJson {
  Json operator()(bool* v) const { return *v; }
  Json operator()(std::int64_t* v) const { return *v; }
  Json operator()(double* v) const { return *v; }
  Json operator()(std::string* v) const { return v->empty() ? Json() : Json(*v); }
  Json operator()(std::vector<std::int64_t>* v) const { return *v; }
  Json operator()(Image v) const { return *v.h == *v.w ? Json(*v.h) : Json::array({*v.h, *v.w}); }
  Json operator()(Span* v) const {
    return v->is_percent ? Json(fmt::format("{}%", v->percent)) : Json(v->steps);
  }
  Json operator()(std::array<double, 2>* v) const { return Json::array({(*v)[0], (*v)[1]}); }
  Json operator()(std::vector<double>* v) const { return *v; }
  Json operator()(ListOrWord* v) const { return v->word.empty() ? Json(v->list) : Json(v->word); }
};

Json json_value(const Field& f, const Config& c) {
  return std::visit(ToJson{}, f.at(const_cast<Config&>(c)));
}

Json sections(const Config& config) {
  Json out = Json::object();
  for (const Field& f : fields())
    if (!foreign(f, config))
      out[std::string(f.section)][std::string(f.key)] = json_value(f, config);
  return out;
}

Value value_of(const Json& j) {
  Value v;
  if (j.is_boolean()) {
    v.kind = Value::Kind::boolean;
    v.boolean = j.get<bool>();
  } else if (j.is_number_float() ||
             (j.is_number_unsigned() && j.get<std::uint64_t>() > std::uint64_t{INT64_MAX})) {
    v.kind = Value::Kind::real;
    v.real = j.get<double>();
  } else if (j.is_number_integer()) {
    v.kind = Value::Kind::integer;
    v.integer = j.get<std::int64_t>();
  } else if (j.is_string()) {
    v.kind = Value::Kind::text;
    v.text = j.get<std::string>();
  } else if (j.is_array()) {
    v.kind = Value::Kind::list;
    for (const Json& item : j)
      v.items.push_back(item.is_structured() ? Value{} : value_of(item));  // no key nests deeper
  } else {
    v.text = j.is_null() ? "null" : "an object";
  }
  return v;
}

}  // namespace

std::string to_toml(const Config& config) {
  const bool endless = config.run.epochs == 0 && config.run.steps == 0;  // train would ask how long
  std::string out = endless
                        ? "# Every value. `tessera train` with this file also needs a length: "
                          "run.epochs or run.steps (--epochs 10).\n"
                        : "# Every value of a run. `tessera train` with this file repeats it.\n";
  for (const std::string& section : section_names()) {
    std::size_t width = 0;
    for (const std::string& key : key_names(section)) width = std::max(width, key.size());
    out += fmt::format("\n[{}]\n", section);
    for (const Field& f : fields()) {
      if (f.section != section || foreign(f, config)) continue;
      if (unset(f, config))
        out += fmt::format("# {} is not set\n", f.key);
      else
        out += fmt::format("{:<{}} = {}\n", f.key, width, toml_value(f, config));
    }
    if (const std::string peak = peak_text(config); section == "lr" && !peak.empty())
      out += "# " + peak + "\n";
  }
  return out;
}

std::string to_json(const Config& config) { return sections(config).dump(2); }

std::string to_json(const Loaded& loaded) {
  Json out = sections(loaded.config);
  if (loaded.deepspeed.empty()) return out.dump(2);
  out["deepspeed"] = Json::array();
  for (const Effective& e : loaded.deepspeed)
    out["deepspeed"].push_back({{"deepspeed", e.deepspeed},
                                {"key", e.key},
                                {"value", e.value},
                                {"source", e.source},
                                {"note", e.note}});
  out["notes"] = loaded.notes;
  return out.dump(2, ' ', false,
                  Json::error_handler_t::replace);  // a note may name a file whose name is no UTF-8
}

std::string model_to_json(const models::ModelConfig& model) {
  Config config;
  config.model = model;
  Json out = Json::object();
  for (const Field& f : fields())
    if (f.section == "model" && f.key != "init" && !unset(f, config) && !foreign(f, config))
      out[std::string(f.key)] = json_value(f, config);
  return out.dump();
}

models::ModelConfig model_from_json(std::string_view text) {
  const auto refuse = [](std::string message, std::string hint) -> Error {
    return Error(ErrorKind::weights, std::move(message), "tessera.model", std::move(hint));
  };
  if (text.size() > (1 << 20)) throw refuse("the model section is larger than 1 MiB", "");
  Json json;
  try {
    json = Json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    throw refuse(
        fmt::format("expected JSON; it goes wrong at byte {} of \"{}\"", e.byte, clean(text)), "");
  } catch (const nlohmann::json::exception&) {
    throw refuse("a number in it is too large for any key", "");
  }
  if (!json.is_object())
    throw refuse(std::string("expected a JSON object, found ") + json.type_name(),
                 "for example {\"family\": \"vit\", \"dim\": 192}");
  std::vector<std::string> problems;
  const auto note = [&](const std::string& message, const std::string& advice) {
    problems.push_back(message + (advice.empty() ? "" : "; " + advice));
  };
  const auto text_of = [&](const char* key) {
    return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
  };
  Config config;
  try {
    config.model = base_model(text_of("name"), text_of("family"));
  } catch (const Error& e) {
    note(e.message, e.hint);
  }
  for (const auto& [key, value] : json.items()) {
    const Field* field = find_field("model", key);
    if (key == "init") {
      note("model.init is about a run, not about the model that a file holds", "leave it out");
    } else if (field == nullptr) {
      std::vector<std::string> names = key_names("model");
      std::erase(names, "init");
      const std::string near = key.size() > 64 ? "" : nearest(key, names);
      note("there is no key model." + clean(key, 60),
           near.empty() ? "" : "did you mean " + near + "?");
    } else if (foreign(*field, config)) {
      note("model." + key + " is not a key of the " + config.model.family + " family",
           "it has " + std::string(models::find_family(config.model.family)->keys));
    } else if (std::optional<Refusal> r = assign(*field, config, value_of(value))) {
      note(r->message, r->advice);
    }
  }
  if (problems.empty()) problems = models::problems(config.model);
  if (problems.empty()) return config.model;
  Error error = refuse(problems[0], "the section has the keys of [model] in a configuration");
  for (std::size_t i = 1; i < std::min<std::size_t>(problems.size(), 20); ++i)
    error.and_also(problems[i]);
  throw error;
}

}  // namespace tessera::config
