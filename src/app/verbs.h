// The verbs of the command line, one function each: its flags, its help and the call it makes.
// Convention: a callback keeps what parsing fills; `json`, `code` (the exit code it sets) and
// `argv` (for ranks that are started with the same command line) outlive the parsing.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera::app {

// A verb that takes --json.
CLI::App* add_verb(CLI::App& app, const char* name, const char* help, bool& json);

// run_verbs.cpp: what computes.
void add_train_verb(CLI::App& app, char** argv, bool& json, int& code);
void add_eval_verb(CLI::App& app, char** argv, bool& json, int& code);
void add_predict_verb(CLI::App& app, char** argv, bool& json, int& code);
void add_quantize_verb(CLI::App& app, bool& json, int& code);
void add_verify_verb(CLI::App& app, bool& json, int& code);

// look_verbs.cpp: what is shown without running.
void add_explain_verb(CLI::App& app, bool& json, int& code);
void add_models_verb(CLI::App& app, bool& json, int& code);
void add_version_verb(CLI::App& app, bool& json, int& code);
void add_config_verbs(CLI::App& app, bool& json);
void add_doctor_verb(CLI::App& app, char** argv, bool& json, int& code);

// file_verbs.cpp: checkpoints and data sets.
void add_ckpt_verbs(CLI::App& app, bool& json, int& code);
void add_data_verbs(CLI::App& app, bool& json, int& code);

}  // namespace tessera::app
