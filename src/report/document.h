// The one JSON document that a verb prints on stdout with --json.
// Convention: text from outside (a path, a name) may be no UTF-8; such bytes become U+FFFD, and the
// document is always valid. A character that steers a terminal is an escape in it
// (base/printable.h), which is the same text to a parser.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"

namespace tessera::report {

std::string document_text(const nlohmann::ordered_json& document);
void print_document(const nlohmann::ordered_json& document);

// Whether this process printed one: what fails afterwards must not print a second.
bool document_printed();

// An error as a document for scripts: ok (false), exit, error, where, help, also.
nlohmann::ordered_json error_document(const Error& error);

}  // namespace tessera::report
