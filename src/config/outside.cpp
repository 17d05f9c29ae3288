#include "config/outside.h"

#include <fmt/format.h>

#include <filesystem>

namespace tessera::config {
namespace {

// Pictures can be drawn within the limits of data/synthetic.h, which a test compares with these.
std::vector<Finding> drawn_problems(const models::ModelConfig& m) {
  std::vector<Finding> out;
  const auto range = [&](const char* key, const char* what, std::int64_t value, std::int64_t low,
                         std::int64_t high) {
    if (value >= low && value <= high) return;
    out.push_back(
        {{key, "data.source", "model.name"},
         fmt::format("{} = {}, but synthetic images have {} to {} {}", key, value, low, high, what),
         "choose other data, or a number that they can have"});
  };
  range("model.image", "pixels a side", m.image_h < 4 || m.image_h > 4096 ? m.image_h : m.image_w,
        4, 4096);
  range("model.channels", "channels", m.channels, 1, 16);
  range("model.classes", "classes", m.classes, 2, 6400);
  return out;
}

}  // namespace

std::vector<Finding> outside_problems(const Config& c, const Source* source, bool look) {
  std::vector<Finding> out;
  if (source && source->kind == "synthetic") out = drawn_problems(c.model);
  std::error_code error;
  if (look && source && !source->dir.empty() && !std::filesystem::is_directory(source->dir, error))
    out.push_back(
        {{"data.source"},
         fmt::format("data.source = \"{}\": there is no such folder", clean(c.data.source, 200)),
         source->has_class_folders()
             ? ""
             : fmt::format("`tessera data get {} --out DIR` fetches the files", source->kind)});
  if (look && !c.init.empty() && !std::filesystem::exists(c.init, error))
    out.push_back(
        {{"model.init"},
         fmt::format("model.init = \"{}\": there is no such file or folder", clean(c.init, 200)),
         "give weights that are there"});
  return out;
}

}  // namespace tessera::config
