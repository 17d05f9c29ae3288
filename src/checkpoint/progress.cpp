#include "checkpoint/progress.h"

#include <cmath>
#include <string_view>

#include "base/check.h"

namespace tessera::run {
namespace {

using nlohmann::json;

// The one list of names; both directions walk it.
template <class P, class F>
void each_field(P& p, F&& field) {
  field("step", p.step);
  field("epoch", p.epoch);
  field("position", p.position);
  field("skipped", p.skipped);
  field("skipped_in_a_row", p.skipped_in_a_row);
  field("best_top1", p.best_top1);
  field("best_epoch", p.best_epoch);
  field("best_step", p.best_step);
  field("epoch_loss", p.epoch_loss);
  field("epoch_correct", p.epoch_correct);
  field("epoch_seconds", p.epoch_seconds);
  field("epoch_images", p.epoch_images);
  field("wall_s", p.wall_s);
  field("reached", p.reached);
  field("time_to_target_s", p.time_to_target_s);
  field("epochs_to_target", p.epochs_to_target);
  field("metrics_bytes", p.metrics_bytes);
  field("metrics_hash", p.metrics_hash);
  field("loss_scale", p.loss_scale);
}

bool read(const json& from, std::int64_t& to) {
  if (!from.is_number_integer() ||
      (from.is_number_unsigned() && from.get<std::uint64_t>() > INT64_MAX))
    return false;
  to = from.get<std::int64_t>();
  return to >= 0;
}
bool read(const json& from, double& to) {
  if (!from.is_number()) return false;
  to = from.get<double>();
  return std::isfinite(to);
}
bool read(const json& from, bool& to) {
  if (!from.is_boolean()) return false;
  to = from.get<bool>();
  return true;
}
bool read(const json& from, std::string& to) {
  if (!from.is_string()) return false;
  to = from.get<std::string>();
  return to.empty() || (to.size() == 16 && to.find_first_not_of("0123456789abcdef") == to.npos);
}
bool read(const json& from, json& to) {
  to = from;
  return from.is_object();
}

}  // namespace

void Progress::add(bool applied, std::int64_t images, double loss, double correct, bool overflow) {
  if (!applied) {
    ++skipped;
    skipped_in_a_row = overflow ? 0 : skipped_in_a_row + 1;
    return;
  }
  ++step;
  skipped_in_a_row = 0;
  epoch_loss += loss * static_cast<double>(images);
  epoch_correct += correct;
  epoch_images += images;
}

json to_json(const Progress& progress) {
  json out = json::object();
  each_field(progress, [&](const char* name, const auto& value) { out[name] = value; });
  return out;
}

Progress progress_from(const json& source, const std::string& where) {
  Progress out;
  each_field(out, [&](const char* name, auto& value) {
    if (name == std::string_view("metrics_hash") && source.is_object() && !source.contains(name))
      return;
    if (!source.is_object() || !source.contains(name) || !read(source.at(name), value))
      throw Error(
          ErrorKind::weights,
          std::string("the checkpoint does not say its '") + name + "', or not as it should",
          where);
  });
  return out;
}

}  // namespace tessera::run
