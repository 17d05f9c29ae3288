// The verbs `study` and `report`: a grid of runs and its page.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera::app {

// The callbacks write the exit code to `code`, which outlives the parsing.
void add_study_verbs(CLI::App& app, int& code);

}  // namespace tessera::app
