// The sweep: a small training in which one call fails, for every call in turn, and what must hold
// of its folder afterwards.
//   - It ends with a documented exit code, never by a signal, never by itself after minutes; an
//   error names a file of the folder.
//   - Exit code 0 means that everything is there: weights, losses and checkpoints of the
//   undisturbed run. What could not be written is said.
//   - No checkpoint is lost, and the same command without the fault goes on from the newest one to
//   the bits of the undisturbed run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "faults/command.h"

namespace tessera::test::faults {

inline const std::string small_run =
    "--model vit_micro --set model.depth=1 --data synthetic --global-batch 8 --threads 1 --set "
    "checkpoint.every=2 "
    "--set data.train_size=64 --set data.test_size=16 --steps 6 ";

// How the training is run, an undisturbed one, and one that was killed when its second checkpoint
// (of step 4) had just got its name.
struct Ground {
  Ground(const std::string& name, const std::string& flags);
  std::string command(const fs::path& out) const {
    return "train " + small_run + flags + "--out " + out.string();
  }
  // Says what an ended run in `folder` lacks, compared with the undisturbed one; empty: nothing.
  std::string difference(const fs::path& folder) const;

  std::string flags;
  fs::path whole, half;
  std::vector<std::string> numbers;  // every loss and score of the undisturbed run
};

const Ground& one_rank();  // made once
// An empty folder of this name; with `resumed` it holds a copy of the killed run of one rank,
// "run".
fs::path folder_for(const std::string& name, bool resumed = false);

struct Tally {
  std::int64_t cases = 0, passed_by = 0, refused = 0,
               unreached = 0;  // passed_by: exit code 0 in spite of the fault
  std::map<int, std::int64_t> codes;
  std::map<Call, std::int64_t> calls;
  std::vector<std::string> findings;
  void print(const std::string& name) const;
  void add(const Tally& other);
};

// Says what the folder holds when the run starts.
enum class Start { fresh, resumed, finished };

// One case in a folder of its own: the run with the fault, then, if it was refused, the same
// command without.
Tally try_fault(const Ground& ground, Start start, const Fault& fault, const fs::path& folder);

// How many calls of each kind a run makes without a fault, by slot.
Ended count_calls(const Ground& ground, Start start, const fs::path& folder);

// All cases, some at a time (TESSERA_FAULT_JOBS, otherwise one per two cores).
Tally try_all(const Ground& ground, Start start, const std::vector<Fault>& faults);

std::vector<std::int64_t> steps_in(const fs::path& run);  // of its checkpoints, ascending
std::vector<std::string> numbers_of(
    const fs::path& run);  // losses and scores of metrics.jsonl, as text
// Whether an error, a warning or a note has the name of a file or folder of the run in it.
bool names_a_file(const std::string& said, const fs::path& run);

}  // namespace tessera::test::faults
