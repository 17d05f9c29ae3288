#include "run/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/rng.h"
#include "config/reader.h"
#include "files/safetensors.h"
#include "files/text.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::uint64_t checksum(std::span<const std::byte> bytes) { return hash_name({reinterpret_cast<const char*>(bytes.data()), bytes.size()}); }

const std::vector<plan::Buffer>& buffers(Session& session) {
  return session.compiled(Goal::train, session.config().batch.global).plan.persistent;
}

// What must agree between a checkpoint and the run that takes it up.
json identity(Session& session) {
  json sizes = json::object();
  for (const plan::Buffer& b : buffers(session)) sizes[b.name] = b.bytes;
  const config::Config& c = session.config();
  return {{"model", json::parse(config::model_to_json(c.model))},
          {"dtype", c.precision.dtype},
          {"optimizer", c.optim.name},
          {"seed", c.run.seed},
          {"buffers", sizes}};
}

json to_json(const Progress& p) {
  return {{"step", p.step},
          {"epoch", p.epoch},
          {"position", p.position},
          {"best_top1", p.best_top1},
          {"best_epoch", p.best_epoch},
          {"epoch_loss", p.epoch_loss},
          {"epoch_correct", p.epoch_correct},
          {"epoch_seconds", p.epoch_seconds},
          {"epoch_images", p.epoch_images},
          {"wall_s", p.wall_s}};
}

Progress progress_of(const json& p) {
  return {p.at("step"),       p.at("epoch"),         p.at("position"),      p.at("best_top1"),    p.at("best_epoch"),
          p.at("epoch_loss"), p.at("epoch_correct"), p.at("epoch_seconds"), p.at("epoch_images"), p.at("wall_s")};
}

// Step numbers of the folders that look like checkpoints, newest first.
std::vector<std::int64_t> steps_in(const fs::path& dir) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.size() > 5 && name.size() < 20 && name.find_first_not_of("0123456789", 5) == name.npos)
      steps.push_back(std::stoll(name.substr(5)));
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

struct Found {
  json identity;
  Progress progress;
  files::Safetensors file;
};

// Reads and proves a checkpoint without touching the session; throws when it is damaged.
Found read(const fs::path& dir) {
  const json manifest = json::parse(files::read_text(dir / "manifest.json", 1 << 20, ErrorKind::weights));
  Found found{manifest.at("identity"), progress_of(manifest.at("progress")), files::Safetensors(dir / "rank-0.safetensors")};
  const json& sums = manifest.at("checksums");
  for (const auto& [name, size] : found.identity.at("buffers").items()) {
    const files::TensorView& t = found.file.at(name);
    if (static_cast<std::int64_t>(t.bytes.size()) != size.get<std::int64_t>() || checksum(t.bytes) != sums.at(name).get<std::uint64_t>())
      throw Error(ErrorKind::weights, "buffer " + name + " is damaged (size or checksum)");
  }
  return found;
}

void check_same_run(const fs::path& dir, const Found& found, Session& session, std::int64_t samples) {
  const char* hint = "--fresh starts over in this folder, --out chooses another";
  const json mine = identity(session);
  std::vector<std::string> differ;
  for (const auto& [key, value] : mine.items())
    if (!found.identity.contains(key) || found.identity.at(key) != value) differ.push_back(key);
  if (!differ.empty())
    throw Error(ErrorKind::weights, "the checkpoint belongs to another run; it differs in " + join(differ, ", "), dir.string(), hint);
  const Progress& p = found.progress;
  if (p.step < 0 || p.epoch < 0 || p.position < 0 || p.position >= samples)
    throw Error(ErrorKind::weights,
                fmt::format("the checkpoint stands at sample {} of epoch {}, but an epoch has {} samples", p.position, p.epoch, samples),
                dir.string(), hint);
}

}  // namespace

void save_checkpoint(const std::string& folder, Session& session, const Progress& progress, std::int64_t keep) {
  const fs::path root = fs::path(folder) / "ckpt", dir = root / fmt::format("step-{}", progress.step),
                 part = root / fmt::format("part-{}", progress.step);
  std::error_code error;
  fs::remove_all(part, error);
  fs::create_directories(part, error);
  if (error)
    throw Error(ErrorKind::disk, "cannot make the checkpoint folder: " + error.message(), part.string(),
                "free some space or choose another --out");
  std::vector<std::vector<std::byte>> bytes;
  std::vector<files::NamedTensor> tensors;
  json sums = json::object();
  for (const plan::Buffer& b : buffers(session)) {
    bytes.emplace_back(static_cast<std::size_t>(b.bytes));
    session.executor().read_persistent(b.name, 0, bytes.back());
    sums[b.name] = checksum(bytes.back());
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) tensors.push_back({buffers(session)[i].name, "U8", {buffers(session)[i].bytes}, bytes[i]});
  files::write_safetensors(part / "rank-0.safetensors", tensors);
  const json manifest = {
      {"format", 1}, {"world", 1}, {"identity", identity(session)}, {"checksums", sums}, {"progress", to_json(progress)}};
  files::write_atomically(part / "manifest.json", manifest.dump(2) + "\n");
  fs::remove_all(dir, error);
  fs::rename(part, dir, error);
  if (error) throw Error(ErrorKind::disk, "cannot put the checkpoint in its place: " + error.message(), dir.string());
  std::int64_t kept = 1;  // the one just written
  for (const std::int64_t step : steps_in(root)) {
    if (step == progress.step) continue;
    if (step > progress.step || (keep > 0 && ++kept > keep)) fs::remove_all(root / fmt::format("step-{}", step), error);
  }
}

std::optional<Progress> load_newest_checkpoint(const std::string& folder, Session& session, std::int64_t samples,
                                               std::vector<std::string>& notes) {
  const fs::path root = fs::path(folder) / "ckpt";
  for (const std::int64_t step : steps_in(root)) {
    const fs::path dir = root / fmt::format("step-{}", step);
    std::optional<Found> found;
    try {
      found.emplace(read(dir));
    } catch (const Error& e) {
      notes.push_back("checkpoint " + dir.string() + " passed over: " + e.what());
    } catch (const json::exception&) {
      notes.push_back("checkpoint " + dir.string() + " passed over: its manifest.json cannot be read");
    }
    if (!found) continue;
    check_same_run(dir, *found, session, samples);
    for (const plan::Buffer& b : buffers(session)) session.executor().write_persistent(b.name, 0, found->file.at(b.name).bytes);
    return found->progress;
  }
  return std::nullopt;
}

}  // namespace tessera::run
