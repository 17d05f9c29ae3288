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
  namespace fs = std::filesystem;
  std::error_code error;
  // Not there, or behind a folder that may not be entered.
  const auto what_is_wrong = [&](const fs::file_status& status, const char* missing) {
    return status.type() == fs::file_type::none ? "cannot be looked at: " + error.message()
                                                : std::string(missing);
  };
  if (const fs::file_status status = look && source && !source->dir.empty()
                                         ? fs::status(source->dir, error)
                                         : fs::file_status(fs::file_type::directory);
      !fs::is_directory(status))
    out.push_back(
        {{"data.source"},
         fmt::format("data.source = \"{}\": {}", clean(c.data.source, 200),
                     what_is_wrong(status, "there is no such folder")),
         source->has_class_folders()
             ? ""
             : fmt::format("`tessera data get {} --out DIR` fetches the files", source->kind)});
  if (const fs::file_status status = look && !c.init.empty()
                                         ? fs::status(c.init, error)
                                         : fs::file_status(fs::file_type::regular);
      !fs::exists(status))
    out.push_back({{"model.init"},
                   fmt::format("model.init = \"{}\": {}", clean(c.init, 200),
                               what_is_wrong(status, "there is no such file or folder")),
                   "give weights that are there"});
  return out;
}

}  // namespace tessera::config
