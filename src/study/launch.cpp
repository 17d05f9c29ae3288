#include "study/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/check.h"
#include "base/printable.h"
#include "files/text.h"

namespace tessera::study {
namespace {

namespace fs = std::filesystem;

std::string value_of(const Pairs& pairs, const std::string& key) {
  const auto found =
      std::find_if(pairs.begin(), pairs.end(), [&](const auto& pair) { return pair.first == key; });
  return found == pairs.end() ? "" : found->second;
}

// The first `count` hosts of the hostfile.
void write_hosts_file(const std::string& from, const fs::path& to, std::size_t count) {
  const std::vector<std::string> hosts = hosts_in(from);
  if (hosts.size() < count)
    throw Error(ErrorKind::usage,
                "launch.hosts = " + std::to_string(count) + ", but the hostfile has only " +
                    std::to_string(hosts.size()),
                from);
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += hosts[i] + "\n";
  files::write_atomically(to, text);
}

std::string per_host_of(const config::StudyLaunch& launch, const PlannedPoint& point) {
  const std::string own = value_of(point.launch, "launch.per_host");
  return own.empty() && launch.per_host > 0 ? std::to_string(launch.per_host) : own;
}

}  // namespace

std::vector<std::string> hosts_in(const fs::path& hostfile) {
  std::istringstream lines(files::read_text(hostfile, 1 << 20));
  std::vector<std::string> out;
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find_first_not_of(" \t\r");
    if (first != line.npos && line[first] != '#') out.push_back(line);
  }
  return out;
}

int ranks_per_host(const config::StudyFile& file, const PlannedPoint& point) {
  if (file.launch.with == "local") return point.ranks;
  const std::string per_host = per_host_of(file.launch, point),
                    hosts = value_of(point.launch, "launch.hosts");
  if (!per_host.empty() && per_host != "0") return std::min(point.ranks, std::stoi(per_host));
  return hosts.empty() ? point.ranks : (point.ranks + std::stoi(hosts) - 1) / std::stoi(hosts);
}

std::vector<std::string> command_of(const config::StudyFile& file, const PlannedPoint& point,
                                    const PlannedRun& run, const fs::path& folder,
                                    const std::string& binary, bool write_hosts) {
  const config::StudyLaunch& launch = file.launch;
  const config::StudyPart& part = file.parts[point.part];
  std::vector<std::string> words;
  const auto add = [&](std::initializer_list<std::string> more) {
    words.insert(words.end(), more);
  };
  const std::string hosts = value_of(point.launch, "launch.hosts");
  const std::string per_host = per_host_of(launch, point);
  if (launch.with == "mpirun") {
    add({"mpirun", "-np", std::to_string(point.ranks)});
    if (!hosts.empty()) {
      if (write_hosts)
        write_hosts_file(launch.hostfile, folder / "hosts.txt",
                         static_cast<std::size_t>(std::stoi(hosts)));
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
  for (const auto& [key, value] : point.keys) add({"--set", key + "=" + value});
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
  for (const std::string& word : command)
    words.push_back(word == binary ? "tessera" : shell_word(word));
  return join(words, " ");
}

std::string launch_words(const config::StudyFile& file) {
  const config::StudyLaunch& launch = file.launch;
  if (launch.with == "local") return "launch: this program starts itself; the file names no other";
  std::vector<std::string> words = {launch.with};
  for (const std::string& word : launch.arguments) words.push_back(shell_word(word));
  return fmt::format(
      "launch: `{}` starts every run; the words after it come from {}, and a launcher starts any "
      "program that they name",
      join(words, " "), file.path);
}

Throttle throttle_of(const PlannedPoint& point) {
  const std::string text = value_of(point.launch, "launch.throttle");
  return text.empty() ? Throttle{} : parse_throttle(text);
}

}  // namespace tessera::study
