#include "report/document.h"

#include <atomic>
#include <cstdio>

#include "base/say.h"

namespace tessera::report {
namespace {

using nlohmann::ordered_json;

std::atomic<bool> printed = false;

ordered_json text_or_null(const std::string& text) {
  return text.empty() ? ordered_json() : ordered_json(text);
}

}  // namespace

std::string document_text(const ordered_json& document) {
  return printable_json(document.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

void print_document(const ordered_json& document) {
  printed = true;
  say_json(stdout, document_text(document));
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
