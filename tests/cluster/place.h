// A job of a test in a folder of its own, as it is seen from outside: its processes, its steps and
// what it said.
#pragma once

#include <set>

#include "app/binary.h"
#include "wait_until.h"

namespace tessera::test {

inline bool says(const std::string& log, const std::string& text) {
  return log.find(text) != log.npos;
}

struct Place {
  explicit Place(const std::string& name) : folder(scratch() / name), log(folder / "log") {
    fs::create_directories(folder);
  }
  fs::path out() const { return folder / "run"; }
  std::string said() const { return read(log); }
  // Folders of heartbeats that are there now; each start of the job has one of its own.
  std::set<std::string> pulses() const {
    std::set<std::string> found;
    for (const fs::path& where : {folder, out()}) {
      std::error_code error;
      for (const auto& entry : fs::directory_iterator(where, error))
        if (entry.path().filename().string().starts_with(".ranks-")) found.insert(entry.path());
    }
    return found;
  }
  // The process of a rank of a start that is not among `before`.
  int pid_of(int rank, const std::set<std::string>& before = {}) const {
    int pid = -1;
    wait_until([&] {
      for (const std::string& pulse : pulses()) {
        if (before.contains(pulse)) continue;
        const json record =
            json::parse(read(fs::path(pulse) / ("rank-" + std::to_string(rank))), nullptr, false);
        if (record.is_object()) pid = record["pid"];
      }
      return pid > 0;
    });
    return pid;
  }
  // The job has made the run folder its own.
  bool opened() const {
    return wait_until([&] {
      for (const std::string& pulse : pulses())
        if (fs::exists(fs::path(pulse) / "opened")) return true;
      return false;
    });
  }
  // The job has made so many steps; a job that has ended makes no more.
  bool reached(std::size_t n, const Process& job) const {
    const auto enough = [&] { return lines_of(out(), "step").size() >= n; };
    return wait_until([&] { return enough() || job.ended(); }) && enough();
  }

  fs::path folder, log;
};

// How many processes went on with the run, one after the other.
inline std::size_t segments(const fs::path& run) {
  return json::parse(read(run / "env.json"), nullptr, false)["segments"].size();
}

}  // namespace tessera::test
