// tessera bench: its flags, and whose batch is measured.
// Convention: as in main.cpp; the callback keeps what it needs alive.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera::app {

// `json` and `code` outlive the parsing; `argv`: the command line, for ranks that are started with
// it.
void add_bench_verb(CLI::App& app, char** argv, bool& json, int& code);

}  // namespace tessera::app
