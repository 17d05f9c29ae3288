#include "report/metrics_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/check.h"
#include "files/disk_call.h"
#include "files/regular_file.h"
#include "files/text.h"

namespace tessera::report {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

const std::vector<const char*> step_columns = {"step", "epoch",      "loss",    "top1",
                                               "lr",   "grad_norm",  "step_ms", "images_per_s",
                                               "mfu",  "comm_bytes", "skipped", "loss_scale"};
const std::vector<const char*> epoch_columns = {"epoch",      "step",      "loss",
                                                "train_top1", "seconds",   "test_loss",
                                                "test_top1",  "test_top5", "test_top1_tta"};

std::string csv_header(const std::vector<const char*>& columns) {
  std::string out;
  for (const char* column : columns) out += (out.empty() ? "" : ",") + std::string(column);
  return out + "\n";
}

// A value that is absent or not finite is an empty field; everything else is a number or a truth
// value, so nothing needs quotes.
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

// So many bytes of lines that say that there was something else: one line where it is not too long
// for its readers.
std::string lost_lines(std::size_t bytes) {
  constexpr std::size_t longest = 1 << 10;
  constexpr std::string_view words = R"({"kind":"lost"})", least = "{}";
  std::string out;
  while (out.size() < bytes) {
    std::size_t line = bytes - out.size();
    if (line > 2 * longest) line = longest;
    std::string text(line > words.size() ? words : line > least.size() ? least : "");
    text.resize(line - 1, text.empty() ? '\n' : ' ');
    out += text + "\n";
  }
  return out;
}

// A name beside the file that nobody has.
std::string name_aside(const std::string& path) {
  std::error_code error;
  std::string out = path + ".damaged";
  for (int i = 2; std::filesystem::exists(std::filesystem::symlink_status(out, error)); ++i)
    out = path + ".damaged-" + std::to_string(i);
  return out;
}

// Lines of this file are of one of three kinds. Damage that leaves valid JSON shows in any other
// kind.
bool is_line(const json& line) {
  if (!line.is_object() || !line.contains("kind")) return false;
  return line["kind"] == "step" || line["kind"] == "epoch" || line["kind"] == "lost";
}

}  // namespace

// Cut, not written anew: a process that is killed here loses nothing.
void MetricsLog::cut(std::uint64_t there, std::uint64_t wanted) {
  std::error_code error;
  if (there > wanted) std::filesystem::resize_file(jsonl_, wanted, error);
  if (error)
    throw Error(ErrorKind::disk,
                "cannot cut the metrics to their length at the checkpoint: " + error.message(),
                jsonl_);
}

// Afterwards the file has `keep` bytes, and kept_ the lines that can be read.
void MetricsLog::take_up(std::int64_t keep, const std::string& hash) {
  const auto wanted = static_cast<std::uint64_t>(keep);
  std::string old;
  std::uint64_t there = 0;
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(jsonl_, error);
  const bool absent = status.type() == std::filesystem::file_type::not_found;
  try {
    if (!absent) {
      const files::RegularFile file(jsonl_, ErrorKind::disk);
      there = file.size();
      old.resize(std::min(there, wanted));
      file.read(0, std::as_writable_bytes(std::span(old)));
    }
  } catch (Error& e) {
    throw Error(
        ErrorKind::disk,
        "the metrics of the steps so far are there and cannot be taken up: " + e.message, jsonl_,
        "make the file readable, or move it away: the run then goes on without these lines");
  }
  std::string mended;
  std::size_t bad = 0, lines = 0, first_bad = 0;
  for (std::size_t at = 0, end; (end = old.find('\n', at)) != old.npos; at = end + 1) {
    const std::string_view text = std::string_view(old).substr(at, end - at);
    json line = json::parse(text, nullptr, false);
    ++lines;
    const bool blank = text.empty() || line == json::object();  // what lost_lines() may leave
    if (!blank && !is_line(line) && ++bad == 1) first_bad = lines;
    mended += blank || is_line(line) ? std::string(text) + "\n" : lost_lines(text.size() + 1);
    if (is_line(line) && line["kind"] != "lost") kept_.push_back(std::move(line));
  }
  const std::size_t missing = wanted - mended.size();
  if (bad == 0 && missing == 0) {
    cut(there, wanted);
    hash_.add(old);
    if (!hash.empty() && hash != this->hash())
      warnings_.push_back(fmt::format(
          "{} is damaged: its first {} bytes have the hash {}, and the checkpoint knows {}; every "
          "line can be read and stays, but some numbers are not those that were measured",
          jsonl_, wanted, this->hash(), hash));
    return;
  }
  std::string what =
      absent ? fmt::format("{} is gone, with {} bytes of what was measured so far", jsonl_, wanted)
             : fmt::format(
                   "{} is damaged: {}{}{}", jsonl_,
                   bad > 0 ? fmt::format("{} of {} lines cannot be read, the first is line {}", bad,
                                         lines, first_bad)
                           : "",
                   bad > 0 && missing > 0 ? ", and " : "",
                   missing > 0
                       ? fmt::format("{} bytes of the {} that the checkpoint knows are missing",
                                     missing, wanted)
                       : "");
  if (there > 0) {
    const std::string aside = name_aside(jsonl_);
    std::filesystem::copy_file(jsonl_, aside, error);
    if (error)
      throw Error(ErrorKind::disk, "cannot keep the damaged metrics aside: " + error.message(),
                  aside);
    what += "; it is kept as " + aside;
  }
  mended += lost_lines(missing);
  files::write_atomically(jsonl_, mended);
  hash_.add(mended);
  warnings_.push_back(what + "; the lines that are lost are of kind \"lost\" in metrics.jsonl");
}

MetricsLog::MetricsLog(const std::string& folder, const LogOptions& options)
    : jsonl_(folder + "/metrics.jsonl"),
      steps_csv_(folder + "/metrics.csv"),
      epochs_csv_(folder + "/epochs.csv"),
      bytes_(options.keep_bytes) {
  if (options.keep_bytes > 0) take_up(options.keep_bytes, options.keep_hash);
  lines_.open(jsonl_, options.keep_bytes > 0 ? std::ios::binary | std::ios::app
                                             : std::ios::binary | std::ios::trunc);
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
  if (!(file << text).flush())
    throw Error(ErrorKind::disk, "cannot write the metrics", path,
                "free some space on the disk, or choose a folder that can be written");
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
  hash_.add(text);
  const json plain = json::parse(text);  // NaN and infinity are null in JSON
  if (steps_.is_open()) append_csv(plain);
  if (!events_) return;
  std::vector<std::pair<std::string, double>> values;
  auto add = [&](const char* key, const char* tag) {
    if (plain.contains(key) && plain[key].is_number())
      values.emplace_back(tag, plain[key].get<double>());
  };
  if (plain["kind"] == "step") {
    add("loss", "train/loss");
    add("top1", "train/top1");
    add("lr", "train/lr");
    add("grad_norm", "train/grad_norm");
    add("images_per_s", "speed/images_per_s");
    add("step_ms", "speed/step_ms");
  } else {
    add("loss", "epoch/loss");
    add("train_top1", "epoch/train_top1");
    add("seconds", "epoch/seconds");
    add("test_loss", "test/loss");
    add("test_top1", "test/top1");
    add("test_top5", "test/top5");
    add("test_top1_tta", "test/top1_tta");
  }
  if (!values.empty()) events_->scalars(plain.value("step", std::int64_t{0}), values);
}

}  // namespace tessera::report
