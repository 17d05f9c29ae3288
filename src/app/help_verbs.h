// `tessera help VERB`, completions and the manual page: all made from the verbs and flags that the
// command line has.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

namespace tessera::app {

// Help in at most 80 columns; to be set before verbs are added, which take it over.
std::shared_ptr<CLI::Formatter> eighty_columns();

}  // namespace tessera::app
