// The measurements of a run, line by line: metrics.jsonl, and beside it the same as metrics.csv and
// epochs.csv and as TensorBoard events. Convention: metrics.jsonl is the truth; on resume it is cut
// where the checkpoint was taken and the CSV files are made from it again. Checkpoints remember its
// length, so it keeps that whatever became of it: lines that are damaged or gone make room for
// lines of kind "lost", and the file as it was found is kept beside it. They also remember its
// hash: a number that has become another one is said.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "files/hash.h"
#include "report/tensorboard.h"

namespace tessera::report {

struct LogOptions {
  std::int64_t keep_bytes = 0;  // of an older metrics.jsonl: what lies beyond is cut
  std::int64_t first_step = 1;  // that will be written
  bool csv = true, tensorboard = true;
  std::string keep_hash = {};  // of these bytes; empty: not known
};

// Every line is flushed when it is written; a full disk is Error(disk), and so is an older file
// that is there and cannot be read.
class MetricsLog {
 public:
  MetricsLog(const std::string& folder, const LogOptions& options);
  void append(const nlohmann::ordered_json& line);  // kind step or epoch
  const std::vector<nlohmann::json>& kept() const {
    return kept_;
  }                                              // what earlier processes of the run wrote
  std::int64_t bytes() const { return bytes_; }  // of metrics.jsonl
  std::string hash() const { return files::hash_text(hash_.value()); }
  const std::vector<std::string>& warnings() const {
    return warnings_;
  }  // what was wrong with the older file

 private:
  void take_up(std::int64_t keep, const std::string& hash);
  void cut(std::uint64_t there, std::uint64_t wanted);
  void write(std::ofstream& file, const std::string& path, const std::string& text);
  void append_csv(const nlohmann::json& line);

  std::string jsonl_, steps_csv_, epochs_csv_;  // paths
  std::ofstream lines_, steps_, epochs_;
  std::optional<EventFile> events_;
  std::vector<nlohmann::json> kept_;
  std::vector<std::string> warnings_;
  std::int64_t bytes_ = 0;
  files::Xxh3 hash_;
};

}  // namespace tessera::report
