#include "report/document.h"

#include <atomic>
#include <cstdio>

namespace tessera::report {
namespace {

using nlohmann::ordered_json;

std::atomic<bool> printed = false;

ordered_json text_or_null(const std::string& text) { return text.empty() ? ordered_json() : ordered_json(text); }

}  // namespace

std::string document_text(const ordered_json& document) { return document.dump(2, ' ', false, ordered_json::error_handler_t::replace); }

void print_document(const ordered_json& document) {
  printed = true;
  const std::string text = document_text(document) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);  // whoever ends the process looks whether it was written
}

bool document_printed() { return printed; }

ordered_json error_document(const Error& error) {
  return {{"ok", false},
          {"exit", error.exit_code()},
          {"error", error.message},
          {"where", text_or_null(error.where)},
          {"help", text_or_null(error.hint)},
          {"also", error.also}};
}

}  // namespace tessera::report
