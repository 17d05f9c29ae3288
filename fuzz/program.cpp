// The text form of programs: what parses prints and parses back the same, and the verifier decides
// without a crash.
#include "ir/program.h"

#include "fuzz.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  ir::Program program;
  if (!fuzz::accepts(ErrorKind::usage,
                     "program:", [&] { program = ir::parse(fuzz::as_text(input, size)); }))
    return 0;
  const std::string text = ir::print(program);
  if (ir::print(ir::parse(text)) != text)
    fuzz::finding("the program does not survive printing:\n" + text);
  try {
    ir::verify(program);
  } catch (
      const Error&) {  // of any kind: a program that is not sound is a mistake of whoever wrote it
    ++fuzz::refusals;
  }
  return 0;
}
