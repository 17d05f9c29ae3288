// Claims of publications beside what a study measured: a claim's number is computed of the records
// of its runs, and its condition gives the verdict. Convention: of repeats the median counts; the
// range beside it is that of the expression over the repeats, each by itself (repeat r of all
// points ran in the same round with the same seed).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "config/study/file.h"
#include "record/study.h"

namespace tessera::study {

inline constexpr std::string_view kHolds = "holds", kDoesNotHold = "does not hold",
                                  kNotTestable = "not testable here", kNotRun = "not run",
                                  kNoNumber = "no number";  // its runs ended without one

// All that is wrong with claims, each problem with its claim and column: what cannot be read, and
// names of parts, keys, techniques and metrics that `study` does not have, or that fit several of
// its points. `study` is that of the plan; nothing of it needs to have run.
std::vector<std::string> check_claims(const std::vector<config::StudyClaim>& claims,
                                      const report::Study& study);
std::vector<report::ClaimResult> judge_claims(const std::vector<config::StudyClaim>& claims,
                                              const report::Study& study);

inline std::vector<std::string> check_claims(const config::StudyFile& file,
                                             const report::Study& study) {
  return check_claims(file.claims, study);
}
inline std::vector<report::ClaimResult> judge_claims(const config::StudyFile& file,
                                                     const report::Study& study) {
  return judge_claims(file.claims, study);
}

// docs/claims.md: a table for each publication, a row for each claim, and how it was made.
std::string claims_markdown(const std::vector<report::ClaimResult>& claims,
                            const report::Study& study);
// The same as claims.md in the folder of a page; where the study has no claims any more, the one
// that was written with the page there goes.
void write_claims(const report::Study& study, const std::filesystem::path& folder);

}  // namespace tessera::study
