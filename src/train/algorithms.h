// Choices of a run's executors from libraries, kept in the run folder (algorithms.json): a run that
// goes on takes the same algorithms again and gets the same bits. Convention: a file holds one
// table per card and versions of libraries; of each key it holds what the first rank chose that
// needed it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "exec/choices.h"
#include "ranks/ranks.h"

namespace tessera::run {

inline constexpr const char* algorithms_file = "algorithms.json";

// The contents of a file; `problem` says why it cannot be used, and then there are no tables.
struct Algorithms {
  std::vector<exec::Choices> tables;
  std::string problem;
};
Algorithms read_algorithms(std::string_view text);
std::string to_text(const std::vector<exec::Choices>& tables);
// The table that was made with the same card and libraries; null: none.
const exec::Choices* same_made(const std::vector<exec::Choices>& tables, const exec::Choices& own);

// All ranks give what they have (null: a device that chooses nothing). Afterwards those with the
// same card and libraries have the same rows: under each key those of the first rank that had it.
// Answers all tables, the older ones of `before` that nobody has now at the end.
std::vector<exec::Choices> agree_on_choices(const Ranks& ranks, exec::Choices* own,
                                            const std::vector<exec::Choices>& before);

// Before the first step, on all ranks: reads what a run that goes on (`resumed`) took before, lets
// `choose` put the rest into the table, and writes the file. `own` is the table of this rank's
// executor; null: it chooses nothing. Notes where bits will differ.
void settle_algorithms(exec::Choices* own, const std::function<void()>& choose, const Ranks& ranks,
                       const std::filesystem::path& folder, bool resumed,
                       std::vector<std::string>& notes);

}  // namespace tessera::run
