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

// Why it is not there, or cannot be looked at behind a folder that may not be entered; empty: it
// is.
static std::string missing(const std::filesystem::path& path, bool folder) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::none)
    return "cannot be looked at: " + error.message();
  if (folder) return std::filesystem::is_directory(status) ? "" : "there is no such folder";
  return std::filesystem::exists(status) ? "" : "there is no such file or folder";
}

std::vector<Finding> outside_problems(const Config& c, const Source* source, bool look) {
  std::vector<Finding> out;
  if (source && source->kind == "synthetic") out = drawn_problems(c.model);
  if (look && source && !source->dir.empty())
    if (const std::string why = missing(source->dir, true); !why.empty())
      out.push_back(
          {{"data.source"},
           fmt::format("data.source = \"{}\": {}", clean(c.data.source, 200), why),
           source->has_class_folders()
               ? ""
               : fmt::format("`tessera data get {} --out DIR` fetches the files", source->kind)});
  if (look && !c.init.empty())
    if (const std::string why = missing(c.init, false); !why.empty())
      out.push_back({{"model.init"},
                     fmt::format("model.init = \"{}\": {}", clean(c.init, 200), why),
                     "give weights that are there"});
  return out;
}

}  // namespace tessera::config
