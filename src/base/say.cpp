#include "base/say.h"

namespace tessera {

void say_lines(std::FILE* to, std::string_view text) {
  const std::string fit = printable_lines(text);
  std::fwrite(fit.data(), 1, fit.size(), to);
  if (to == stderr) std::fflush(to);
}

void say_json(std::FILE* to, std::string_view document) {
  while (document.ends_with('\n')) document.remove_suffix(1);
  say_lines(to, printable_json(document) + "\n");
}

}  // namespace tessera
