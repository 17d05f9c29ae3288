// The verbs of the command line: a table, in the order in which help shows them, and one function
// each with its flags, its help and the call it makes. Convention: a callback keeps what parsing
// fills; `json`, `code` (the exit code it sets) and `argv` (for ranks that are started with the
// same command line) outlive the parsing.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera::app {

// A verb that takes --json.
CLI::App* add_verb(CLI::App& app, const char* name, const char* help, bool& json);

// A row each. In run_verbs.cpp is what computes, in look_verbs.cpp what is shown without running,
// in file_verbs.cpp checkpoints and data sets. `study` adds `report` too, and `help` comes last: it
// shows those before it.
#define TESSERA_VERBS(X) \
  X(train)               \
  X(eval)                \
  X(predict)             \
  X(quantize)            \
  X(verify)              \
  X(bench)               \
  X(explain)             \
  X(ckpt)                \
  X(data)                \
  X(study)               \
  X(models)              \
  X(version)             \
  X(config)              \
  X(doctor)              \
  X(help)

#define TESSERA_DECLARE_VERB(name) \
  void add_##name##_verb(CLI::App& app, char** argv, bool& json, int& code);
TESSERA_VERBS(TESSERA_DECLARE_VERB)
#undef TESSERA_DECLARE_VERB

inline void add_all_verbs(CLI::App& app, char** argv, bool& json, int& code) {
#define TESSERA_ADD_VERB(name) add_##name##_verb(app, argv, json, code);
  TESSERA_VERBS(TESSERA_ADD_VERB)
#undef TESSERA_ADD_VERB
}

}  // namespace tessera::app
