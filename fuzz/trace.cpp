// trace.json of a run, as `tessera explain --run` reads it: what is accepted has turns in range.
#include "report/trace.h"

#include "fuzz.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  report::PipelineTrace trace;
  const std::string text(fuzz::as_text(input, size));
  if (!fuzz::accepts(ErrorKind::usage, "trace.json",
                     [&] { trace = report::read_trace(text, "trace.json"); }))
    return 0;
  for (const report::TraceTurn& turn : trace.turns)
    if (turn.rank < 0 || turn.stage < 0 || turn.micro < 0 || !(turn.end_us >= turn.start_us))
      fuzz::finding("a turn that cannot be:\n" + text);
  return 0;
}
