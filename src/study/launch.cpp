#include "study/launch.h"

#include <algorithm>
#include <sstream>

#include "base/check.h"
#include "base/printable.h"
#include "files/text.h"

namespace tessera::study {
namespace {

namespace fs = std::filesystem;

std::string value_of(const Pairs& pairs, const std::string& key) {
  const auto found = std::find_if(pairs.begin(), pairs.end(), [&](const auto& pair) { return pair.first == key; });
  return found == pairs.end() ? "" : found->second;
}

// The first `count` hosts of the hostfile; lines without one do not count.
void write_hosts_file(const std::string& from, const fs::path& to, int count) {
  std::istringstream lines(files::read_text(from, 1 << 20));
  std::string text;
  int taken = 0;
  for (std::string line; taken < count && std::getline(lines, line);) {
    const auto first = line.find_first_not_of(" \t\r");
    if (first == line.npos || line[first] == '#') continue;
    text += line + "\n", ++taken;
  }
  if (taken < count)
    throw Error(ErrorKind::usage, "launch.hosts = " + std::to_string(count) + ", but the hostfile has only " + std::to_string(taken), from);
  files::write_atomically(to, text);
}

}  // namespace

std::vector<std::string> command_of(const config::StudyFile& file, const PlannedPoint& point, const PlannedRun& run, const fs::path& folder,
                                    const std::string& binary, bool write_hosts) {
  const config::StudyLaunch& launch = file.launch;
  const config::StudyPart& part = file.parts[point.part];
  std::vector<std::string> words;
  const auto add = [&](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
  const std::string hosts = value_of(point.launch, "launch.hosts");
  std::string per_host = value_of(point.launch, "launch.per_host");
  if (per_host.empty() && launch.per_host > 0) per_host = std::to_string(launch.per_host);
  if (launch.with == "mpirun") {
    add({"mpirun", "-np", std::to_string(point.ranks)});
    if (!hosts.empty()) {
      if (write_hosts) write_hosts_file(launch.hostfile, folder / "hosts.txt", std::stoi(hosts));
      add({"--hostfile", (folder / "hosts.txt").string()});
    } else if (!launch.hostfile.empty()) {
      add({"--hostfile", launch.hostfile});
    }
    if (!per_host.empty() && per_host != "0") add({"--map-by", "ppr:" + per_host + ":node"});
  } else if (launch.with == "srun") {
    add({"srun", "-n", std::to_string(point.ranks)});
    if (!hosts.empty()) add({"-N", hosts});
    if (!per_host.empty() && per_host != "0") add({"--ntasks-per-node", per_host});
  }
  words.insert(words.end(), launch.arguments.begin(), launch.arguments.end());
  const bool train = part.verb == "train";
  add({binary});
  train ? add({"train"}) : add({"bench", part.verb});
  if (!file.config.empty()) add({file.config});
  for (const auto& [key, value] : point.keys)
    add({"--set", key + "=" + value});
  add({"--set", "run.seed=" + std::to_string(point.seed + run.repeat)});
  if (train) {
    add({"--out", folder.string(), "--fresh", "--quiet"});
  } else if (const std::string batch = value_of(point.keys, "batch.global"); !batch.empty()) {
    add({"--batch", batch});
  }
  words.insert(words.end(), part.arguments.begin(), part.arguments.end());
  add({"--json"});
  return words;
}

std::string shell_line(const std::vector<std::string>& command, const std::string& binary) {
  std::vector<std::string> words;
  for (const std::string& word : command) words.push_back(word == binary ? "tessera" : shell_word(word));
  return join(words, " ");
}

Throttle throttle_of(const PlannedPoint& point) {
  const std::string text = value_of(point.launch, "launch.throttle");
  return text.empty() ? Throttle{} : parse_throttle(text);
}

}  // namespace tessera::study
