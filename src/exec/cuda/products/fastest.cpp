#include "exec/cuda/products/fastest.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>

#include "base/cache_folder.h"
#include "base/rng.h"

namespace tessera::exec::cuda {
namespace {

constexpr std::size_t most_rows = 100000, longest_line = 4000;
constexpr std::int64_t most_workspace = std::int64_t{1} << 40;

bool wanted() {
  static const bool asked = [] {
    const char* given = std::getenv("TESSERA_CUDA_MEASURE");
    return !given || std::string_view(given) != "0";
  }();
  return asked;
}

// A key has blanks, so it comes last: "WORKSPACE ALGORITHM KEY". Those of an algorithm (an engine
// with its knobs) become underscores.
std::string line_of(const std::string& key, const Choice& choice) {
  std::string algorithm = choice.algorithm;
  std::replace(algorithm.begin(), algorithm.end(), ' ', '_');
  return std::to_string(choice.workspace) + " " + algorithm + " " + key + "\n";
}
bool parse(const std::string& line, std::string& key, Choice& choice) {
  std::istringstream words(line);
  if (!(words >> choice.workspace >> choice.algorithm) || choice.workspace < 0 ||
      choice.workspace > most_workspace || words.get() != ' ')
    return false;
  std::replace(choice.algorithm.begin(), choice.algorithm.end(), '_', ' ');
  return std::getline(words, key) && !key.empty();
}

}  // namespace

Fastest& Fastest::of(const Choices::Facts& made_with) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Fastest>> all;
  std::string name;
  for (const auto& [fact, value] : made_with) name += fact + "\n" + value + "\n";
  const std::lock_guard lock(mutex);
  std::unique_ptr<Fastest>& found = all[name];
  if (!found) {
    const std::filesystem::path folder = cache_folder();
    char file[40];
    std::snprintf(file, sizeof file, "products-%016llx.txt",
                  static_cast<unsigned long long>(hash_name(name)));
    found = std::make_unique<Fastest>(folder.empty() ? folder : folder / file);
  }
  return *found;
}

// A line that was cut off, or is none, is passed over: it is measured anew.
void Fastest::read() {
  std::ifstream file(file_);
  std::string line, key;
  for (std::size_t rows = 0; rows < most_rows && std::getline(file, line); ++rows)
    if (Choice choice; line.size() <= longest_line && parse(line, key, choice))
      rows_.try_emplace(key, choice);
}

bool Fastest::append(const std::string& key, const Choice& choice) const {
  std::ifstream before(file_, std::ios::binary | std::ios::ate);
  const bool whole =
      !before || before.tellg() == 0 || (before.seekg(-1, std::ios::end).get() == '\n');
  std::ofstream file(file_, std::ios::app);
  return file && file << (whole ? "" : "\n") << line_of(key, choice) << std::flush && file;
}

const Choice* Fastest::find(const std::string& key, const std::function<Choice()>& measure) {
  if (file_.empty() || !wanted()) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto look = [&]() -> const Choice* {
    const auto found = rows_.find(key);
    return found == rows_.end() ? nullptr : &found->second;
  };
  if (const Choice* known = look()) return known;
  const CacheLock alone(file_);  // other processes measure the same at the same time
  if (!alone.held()) return nullptr;
  read();
  if (const Choice* known = look()) return known;
  const Choice measured = measure();
  if (measured.algorithm.empty() || !append(key, measured)) return nullptr;
  return &(rows_[key] = measured);
}

}  // namespace tessera::exec::cuda
