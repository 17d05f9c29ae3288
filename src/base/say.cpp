#include "base/say.h"

#include <cerrno>
#include <system_error>

namespace tessera {

void say_lines(std::FILE* to, std::string_view text) {
  const std::string fit = printable_lines(text);
  // A reader of messages who is gone ends nothing; results that cannot be written do.
  const bool whole = std::fwrite(fit.data(), 1, fit.size(), to) == fit.size();
  if (!whole && to != stderr) throw std::system_error(errno, std::generic_category(), "cannot write");
}

void say_json(std::FILE* to, std::string_view document) {
  while (document.ends_with('\n')) document.remove_suffix(1);
  say_lines(to, printable_json(document) + "\n");
}

}  // namespace tessera
