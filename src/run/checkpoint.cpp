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

const std::vector<plan::Buffer>& buffers(Session& session) { return session.compiled(Goal::train, session.config().batch.global).plan.persistent; }

// Step numbers of the folders that look like checkpoints, newest first.
std::vector<std::int64_t> steps_in(const fs::path& dir) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.size() > 5 && name.size() < 20 && name.find_first_not_of("0123456789", 5) == name.npos) steps.push_back(std::stoll(name.substr(5)));
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

Progress load(const fs::path& dir, Session& session) {
  const json manifest = json::parse(files::read_text(dir / "manifest.json", 1 << 20, ErrorKind::weights));
  if (manifest.at("model") != json::parse(config::model_to_json(session.config().model)))
    throw Error(ErrorKind::weights, "it holds another model than the config describes", "", "use --fresh, or another --out, to start a new run");
  const files::Safetensors file(dir / "rank-0.safetensors");
  for (const plan::Buffer& b : buffers(session)) {
    const files::TensorView& t = file.at(b.name);
    if (static_cast<std::int64_t>(t.bytes.size()) != b.bytes) throw Error(ErrorKind::weights, "buffer " + b.name + " has another size");
    if (checksum(t.bytes) != manifest.at("checksums").at(b.name).get<std::uint64_t>()) throw Error(ErrorKind::weights, "buffer " + b.name + " is damaged (checksum)");
  }
  for (const plan::Buffer& b : buffers(session)) session.executor().write_persistent(b.name, 0, file.at(b.name).bytes);
  const json& p = manifest.at("progress");
  return {p.at("step"), p.at("epoch"), p.at("position"), p.at("best_top1"), p.at("best_epoch")};
}

}  // namespace

void save_checkpoint(const std::string& folder, Session& session, const Progress& progress, std::int64_t keep) {
  const fs::path root = fs::path(folder) / "ckpt", dir = root / fmt::format("step-{}", progress.step), part = root / fmt::format("part-{}", progress.step);
  std::error_code error;
  fs::remove_all(part, error);
  fs::create_directories(part, error);
  if (error) throw Error(ErrorKind::disk, "cannot make the checkpoint folder: " + error.message(), part.string(), "free some space or choose another --out");
  std::vector<std::vector<std::byte>> bytes;
  std::vector<files::NamedTensor> tensors;
  json sums = json::object();
  for (const plan::Buffer& b : buffers(session)) {
    bytes.emplace_back(static_cast<std::size_t>(b.bytes));
    session.executor().read_persistent(b.name, 0, bytes.back());
    tensors.push_back({b.name, "U8", {b.bytes}, bytes.back()});
    sums[b.name] = checksum(bytes.back());
  }
  files::write_safetensors(part / "rank-0.safetensors", tensors);
  const json manifest = {{"format", 1},
                         {"model", json::parse(config::model_to_json(session.config().model))},
                         {"dtype", session.config().precision.dtype},
                         {"world", 1},
                         {"checksums", sums},
                         {"progress", {{"step", progress.step}, {"epoch", progress.epoch}, {"position", progress.position}, {"best_top1", progress.best_top1}, {"best_epoch", progress.best_epoch}}}};
  files::write_atomically(part / "manifest.json", manifest.dump(2) + "\n");
  fs::remove_all(dir, error);
  fs::rename(part, dir, error);
  if (error) throw Error(ErrorKind::disk, "cannot put the checkpoint in its place: " + error.message(), dir.string());
  if (keep > 0) {
    const std::vector<std::int64_t> steps = steps_in(root);
    for (std::size_t i = static_cast<std::size_t>(keep); i < steps.size(); ++i) fs::remove_all(root / fmt::format("step-{}", steps[i]), error);
  }
}

std::optional<Progress> load_newest_checkpoint(const std::string& folder, Session& session, std::vector<std::string>& notes) {
  const fs::path root = fs::path(folder) / "ckpt";
  for (const std::int64_t step : steps_in(root)) {
    const fs::path dir = root / fmt::format("step-{}", step);
    try {
      return load(dir, session);
    } catch (const Error& e) {
      notes.push_back("checkpoint " + dir.string() + " passed over: " + e.what());
    } catch (const json::exception&) {
      notes.push_back("checkpoint " + dir.string() + " passed over: its manifest.json cannot be read");
    }
  }
  return std::nullopt;
}

}  // namespace tessera::run
