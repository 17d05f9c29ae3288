#include "models/description/family.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace tessera::models {

std::string text(std::int64_t v) { return std::to_string(v); }
std::string text(const std::vector<std::int64_t>& list) {
  std::vector<std::string> words;
  for (const std::int64_t v : list) words.push_back(text(v));
  return "[" + join(words, ", ") + "]";
}

bool Checks::need(bool ok, std::string problem) {
  if (!ok) out.push_back(std::move(problem));
  return ok;
}

bool Checks::in_range(const char* key, std::int64_t v, std::int64_t most) {
  return need(v >= 1 && v <= most, std::string("model.") + key + " = " + text(v) +
                                       " must be between 1 and " + text(most));
}

bool Checks::each_in_range(const char* key, const std::vector<std::int64_t>& list,
                           std::int64_t most) {
  const std::string what = std::string("model.") + key + " = " + text(list);
  bool ok = need(!list.empty() && list.size() <= 8, what + " must have 1 to 8 stages");
  for (const std::int64_t v : list)
    ok = ok && need(v >= 1 && v <= most, what + ": each must be between 1 and " + text(most));
  return ok;
}

bool Checks::image_in_range() {
  const bool height = in_range("image (height)", c.image_h, 16384);
  return in_range("image (width)", c.image_w, 16384) && height;
}

bool Family::has(std::string_view key) const {
  return key == "name" || key == "family" || key == "init" ||
         (" " + std::string(keys) + " ").find(" " + std::string(key) + " ") != keys.npos;
}

const std::vector<const Family*>& families() {
  static const std::vector<const Family*> all = {
#define X(name) &name##_family,
      TESSERA_FAMILIES(X)
#undef X
  };
  return all;
}

const Family* find_family(std::string_view name) {
  for (const Family* row : families())
    if (row->name == name) return row;
  return nullptr;
}

const Family& family_of(const ModelConfig& config) {
  if (const Family* row = find_family(config.family)) return *row;
  throw Error(ErrorKind::usage, "there is no model family '" + config.family + "'", "model.family",
              "choose " + family_names());
}

std::string family_names() {
  std::string out;
  const std::size_t n = families().size();
  for (std::size_t i = 0; i < n; ++i)
    out += (i == 0 ? "" : i + 1 == n ? " or " : ", ") + std::string(families()[i]->name);
  return out;
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = [] {
    std::vector<Preset> rows;
    for (const Family* family : families())
      for (Preset& row : family->presets()) rows.push_back(std::move(row));
    return rows;
  }();
  return all;
}

const ModelConfig& preset(std::string_view name) {
  std::vector<std::string> names;
  for (const Preset& row : presets()) {
    if (row.name == name) return row.config;
    names.push_back(row.name);
  }
  const std::string near = nearest(name, names);
  throw Error(ErrorKind::usage, "there is no model '" + std::string(name) + "'", "model.name",
              near.empty() ? "choose one of " + join(names, ", ")
                           : "did you mean " + near + "? `tessera models` lists all");
}

std::vector<std::string> problems(const ModelConfig& c) {
  Checks checks{c, {}};
  checks.in_range("channels", c.channels, 1024);
  checks.in_range("classes", c.classes, 1 << 20);
  checks.need(c.drop_path >= 0 && c.drop_path < 1,
              "model.drop_path must be at least 0 and less than 1");
  for (const Preset& row : presets())
    if (row.name == c.name && row.config.family != c.family) {
      checks.need(false, "model.family = \"" + c.family + "\" but model.name = \"" + c.name +
                             "\" is a " + row.config.family);
      return checks.out;
    }
  const Family* family = find_family(c.family);
  if (family)
    family->check(checks);
  else
    checks.need(false,
                "model.family = \"" + c.family + "\" is not known; choose " + family_names());
  if (!checks.out.empty()) return checks.out;
  if (const double count = parameter_count(c); count > most_parameters)
    checks.need(false, family->size(c) + " and model.classes = " + text(c.classes) + " make " +
                           text(std::llround(count / 1e9)) + " billion parameters; at most " +
                           text(std::llround(most_parameters / 1e9)) + " billion are possible");
  return checks.out;
}

double parameter_count(const ModelConfig& m) { return family_of(m).parameter_count(m); }

double widest_tensor(const ModelConfig& m, bool fused) {
  const double image = as_real(m.image_h) * as_real(m.image_w) * as_real(m.channels);
  return std::max({image, as_real(m.classes), family_of(m).widest_tensor(m, fused)});
}

std::vector<std::int64_t> depths_of(const ModelConfig& m) { return family_of(m).depths(m); }

std::int64_t layer_count(const ModelConfig& m) {
  const std::vector<std::int64_t> depths = depths_of(m);
  return std::accumulate(depths.begin(), depths.end(), std::int64_t{0});
}

std::int64_t block_count(const ModelConfig& m) {
  const auto stages = static_cast<std::int64_t>(depths_of(m).size());
  return layer_count(m) + (family_of(m).mergings ? stages - 1 : 0);
}

}  // namespace tessera::models
