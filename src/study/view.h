// A study as a page shows it (report::Study), from its plan and its database; and what scripts read
// of it. Convention: the plan is kept as JSON in the database with every run's identity, so a page
// can be drawn when the study's file, and the configuration under it, are gone or changed.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/study/file.h"
#include "record/study.h"
#include "study/grid.h"
#include "study/state.h"

namespace tessera::study {

report::PartKind kind_named(const std::string& kind);

// The plan, all of it waiting; `command` as typed.
nlohmann::ordered_json plan_json(const config::StudyFile& file, const Plan& plan,
                                 const std::string& command);
// The study of that plan, with what the database knows of its runs.
report::Study study_of(const nlohmann::json& plan, const std::map<std::string, RunRow>& rows);
report::Repeat repeat_of(const RunRow& row, int number, const std::string& identity);

// Reads a study's folder and judges its claims; running: a `tessera study` holds the folder.
report::Study load_study(const std::filesystem::path& folder);
bool is_study(const std::filesystem::path& folder);
// A run's folder as a study of one point; `follow`: running until its summary.json is there.
report::Study study_of_run(const std::filesystem::path& folder, bool follow = false);

// Seconds that runs took, and that those which wait will take: each as long as its like (of its
// point, else its part, else all). `only`: parts whose runs are waited for; empty: all.
void estimate(report::Study& study, const std::vector<std::string>& only = {});

// `tessera study --json`, `tessera report --json`.
nlohmann::ordered_json document_of(const report::Study& study, const std::string& folder,
                                   const std::string& page);

}  // namespace tessera::study
