#include "report/metrics_log.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "files/disk_call.h"

namespace tessera::report {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

const std::vector<const char*> step_columns = {"step",    "epoch",        "loss", "top1",       "lr",     "grad_norm",
                                               "step_ms", "images_per_s", "mfu",  "comm_bytes", "skipped"};
const std::vector<const char*> epoch_columns = {"epoch",     "step",      "loss",      "train_top1",   "seconds",
                                                "test_loss", "test_top1", "test_top5", "test_top1_tta"};

std::string csv_header(const std::vector<const char*>& columns) {
  std::string out;
  for (const char* column : columns) out += (out.empty() ? "" : ",") + std::string(column);
  return out + "\n";
}

// A value that is absent or not finite is an empty field; everything else is a number or a truth value, so nothing needs quotes.
std::string csv_row(const std::vector<const char*>& columns, const json& line) {
  std::string out;
  for (const char* column : columns) {
    if (column != columns.front()) out += ",";
    const auto found = line.find(column);
    if (found != line.end() && found->is_boolean()) out += found->get<bool>() ? "1" : "0";
    if (found != line.end() && found->is_number()) out += found->dump();
  }
  return out + "\n";
}

}  // namespace

MetricsLog::MetricsLog(const std::string& folder, const LogOptions& options)
    : jsonl_(folder + "/metrics.jsonl"), steps_csv_(folder + "/metrics.csv"), epochs_csv_(folder + "/epochs.csv") {
  std::string old;
  std::error_code error;
  const std::uintmax_t there = std::filesystem::exists(jsonl_, error) ? std::filesystem::file_size(jsonl_, error) : 0;
  if (std::ifstream file(jsonl_, std::ios::binary); file && options.keep_bytes > 0) {
    old.resize(static_cast<std::size_t>(std::min<std::uintmax_t>(there, static_cast<std::uintmax_t>(options.keep_bytes))));
    file.read(old.data(), static_cast<std::streamsize>(old.size()));
    old.resize(static_cast<std::size_t>(file.gcount()));
    old.resize(old.rfind('\n') == old.npos ? 0 : old.rfind('\n') + 1);  // a file that lost its end keeps its whole lines
  }
  for (std::size_t at = 0, end; (end = old.find('\n', at)) != old.npos; at = end + 1) {
    json line = json::parse(old.begin() + static_cast<std::ptrdiff_t>(at), old.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (line.is_object() && line.contains("kind") && line["kind"].is_string()) kept_.push_back(std::move(line));
  }
  // Cut, not written anew: a process that is killed here loses nothing.
  if (there > old.size()) std::filesystem::resize_file(jsonl_, old.size(), error);
  if (error) throw Error(ErrorKind::disk, "cannot cut the metrics to their length at the checkpoint: " + error.message(), jsonl_);
  bytes_ = static_cast<std::int64_t>(old.size());
  lines_.open(jsonl_, std::ios::binary | std::ios::app);
  write(lines_, jsonl_, "");
  if (options.csv) {
    steps_.open(steps_csv_, std::ios::binary | std::ios::trunc);
    epochs_.open(epochs_csv_, std::ios::binary | std::ios::trunc);
    write(steps_, steps_csv_, csv_header(step_columns));
    write(epochs_, epochs_csv_, csv_header(epoch_columns));
    for (const json& line : kept_) append_csv(line);
  }
  if (options.tensorboard) events_.emplace(folder, options.first_step);
}

void MetricsLog::write(std::ofstream& file, const std::string& path, const std::string& text) {
  const files::DiskCall call("writing", path);
  if (!(file << text).flush()) throw Error(ErrorKind::disk, "cannot write the metrics", path, "is the disk full or the folder read-only?");
}

void MetricsLog::append_csv(const json& line) {
  if (line["kind"] == "step")
    write(steps_, steps_csv_, csv_row(step_columns, line));
  else
    write(epochs_, epochs_csv_, csv_row(epoch_columns, line));
}

void MetricsLog::append(const ordered_json& line) {
  const std::string text = line.dump() + "\n";
  write(lines_, jsonl_, text);
  bytes_ += static_cast<std::int64_t>(text.size());
  const json plain = json::parse(text);  // NaN and infinity are null in JSON
  if (steps_.is_open()) append_csv(plain);
  if (!events_) return;
  std::vector<std::pair<std::string, double>> values;
  auto add = [&](const char* key, const char* tag) {
    if (plain.contains(key) && plain[key].is_number()) values.emplace_back(tag, plain[key].get<double>());
  };
  if (plain["kind"] == "step") {
    add("loss", "train/loss"), add("top1", "train/top1"), add("lr", "train/lr"), add("grad_norm", "train/grad_norm");
    add("images_per_s", "speed/images_per_s"), add("step_ms", "speed/step_ms");
  } else {
    add("loss", "epoch/loss"), add("train_top1", "epoch/train_top1"), add("seconds", "epoch/seconds");
    add("test_loss", "test/loss"), add("test_top1", "test/top1"), add("test_top5", "test/top5"), add("test_top1_tta", "test/top1_tta");
  }
  if (!values.empty()) events_->scalars(plain.value("step", std::int64_t{0}), values);
}

}  // namespace tessera::report
