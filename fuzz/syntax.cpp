// The texts with a small syntax of their own: data.source, run.until, optim.freeze,
// parallel.recompute, and bare values of `--set`.
#include "config/config.h"
#include "config/value.h"
#include "fuzz.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  const std::string_view text = fuzz::as_text(input, size);
  fuzz::accepts(ErrorKind::usage, "data.source", [&] { config::parse_source(text); });
  fuzz::accepts(ErrorKind::usage, "run.until", [&] { config::parse_until(text); });
  fuzz::accepts(ErrorKind::usage, "optim.freeze", [&] { config::parse_freeze(text); });
  fuzz::accepts(ErrorKind::usage, "parallel.recompute", [&] { config::parse_recompute(text); });
  config::describe(config::read_value(text));  // any text is a value
  return 0;
}
