// Pipeline schedules as text: what parses prints and parses back the same, check() decides without
// a crash, and what it accepts can run.
#include "transforms/schedules.h"

#include "fuzz.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  transforms::Schedule schedule;
  if (!fuzz::accepts(ErrorKind::usage, "mine.txt", [&] {
        schedule = transforms::parse_schedule(fuzz::as_text(input, size), "mine.txt");
      }))
    return 0;
  if (transforms::parse_schedule(transforms::print(schedule), "again") != schedule)
    fuzz::finding("the schedule does not survive printing:\n" + transforms::print(schedule));
  if (!fuzz::accepts(ErrorKind::usage, "mine.txt",
                     [&] { transforms::check(schedule, "mine.txt"); }))
    return 0;
  std::size_t turns = 0;
  for (const auto& rank : schedule.ranks) turns += rank.size();
  if (transforms::simulate(schedule, [](const transforms::Turn&) { return 1.0; }).size() != turns)
    fuzz::finding("a schedule that was accepted does not come to its end:\n" +
                  transforms::print(schedule));
  return 0;
}
