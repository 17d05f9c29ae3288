#include "train/results.h"

#include <nlohmann/json.hpp>

#include "checkpoint/weights.h"
#include "checkpoint/weights_open.h"
#include "files/disk.h"
#include "files/look.h"
#include "files/text.h"
#include "input/dataset.h"
#include "train/predictions.h"
#include "train/train_report.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;

// The files that the run has written line by line: the metrics as CSV and for TensorBoard, the log.
void flush_files(const fs::path& run) {
  for (const fs::path& path : files::entries_of(run)) {
    std::error_code error;
    const fs::file_status status = fs::symlink_status(path, error);
    if (fs::is_regular_file(status) || !fs::status_known(status)) files::sync_file(path);
  }
}

}  // namespace

nlohmann::json manifest_notes(const TrainState& state, std::int64_t samples) {
  return {{"samples", samples},
          {"lr", {{"step", state.progress.step}, {"total", state.total}}},
          {"classes", state.train->class_names()},
          {"preprocess", preprocess_of(state.config)}};
}

nlohmann::ordered_json write_results(const fs::path& run, TrainState& state,
                                     const std::map<std::string, std::vector<double>>& weights) {
  save_weights(
      run / "weights.safetensors", state.config.model,
      [&](const std::string& name) { return weights.at(name); }, Naming::torchvision,
      storage_dtype(state.config) == ir::DType::f64 ? "F64" : "F32", state.train->class_names(),
      preprocess_of(state.config).dump());
  write_predictions(run, state.results.final, *state.test);
  nlohmann::ordered_json summary = summary_of(state.config, state.progress, state.results);
  flush_files(run);
  files::write_atomically(run / "summary.json", summary.dump(2) + "\n");
  return summary;
}

}  // namespace tessera::run
