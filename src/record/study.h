// A study as a page shows it: parts, in each the points of its grid, at each point the repeats.
// Plain data: study/ fills it from its database, a single run folder becomes a study of one point.
// Convention: points of a part are in the order of its grid, the baseline first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "record/record.h"

namespace tessera::report {

enum class PartKind : std::uint8_t {
  strong,
  weak,
  batch,
  accumulation,
  techniques,
  accuracy,
  layers
};
inline constexpr std::string_view part_kinds[] = {"strong",     "weak",     "batch", "accumulation",
                                                  "techniques", "accuracy", "layers"};
std::string_view name(PartKind kind);

enum class Outcome : std::uint8_t { waiting, running, done, failed };

struct Repeat {
  int number = 0;  // from 0
  Outcome outcome = Outcome::waiting;
  std::string reason;   // failed: why, in a sentence
  std::string command;  // as typed in a shell
  std::string folder;   // of the run, relative to the study's; "": none
  int attempts = 0;
  double wall = kUnknown;           // of the whole command
  std::optional<RunRecord> record;  // done
};

struct Point {
  std::string technique;  // "": none
  std::vector<std::pair<std::string, std::string>>
      axes;  // key of the grid, value as the study writes it
  std::vector<std::pair<std::string, std::string>>
      fixed;  // what follows from the kind (weak: data.fraction)
  std::vector<Repeat> repeats;
};

struct Part {
  std::string name, title, what;  // what: a sentence of the author's
  PartKind kind = PartKind::techniques;
  std::string verb = "train";
  std::string axis;  // the key along x: "run.np" for strong and weak, "batch.global" for batch,
                     // ...; "" for techniques
  // Why what is waiting is not run on this machine ("no card (there is no driver)"); "": it is.
  std::string missing;
  std::vector<Point> points;
  // Numbers to stand beside ours, from a publication: (row, value), shares are of their sum.
  std::vector<std::pair<std::string, double>> published;
  std::string published_by;
};

struct ClaimResult {
  // number: ours, in words; verdict: holds | does not hold | not testable here | not run | no
  // number (its runs failed, or it is not finite)
  std::string paper, says, command, number, verdict, note;
};

struct Study {
  std::string name, title, what;
  std::string file, command;  // the study's own file and the command that runs it
  std::int64_t warmup = 0;
  double elapsed = 0, remaining = kUnknown;  // seconds; remaining: the estimate while it runs
  bool running = false;
  std::vector<Part> parts;
  std::vector<ClaimResult> claims;
};

}  // namespace tessera::report
