// The verdict on a single run: its times, its memory, where a step goes, what came out.
#include <fmt/format.h>

#include <cmath>

#include "page/tiles.h"
#include "page/verdict_parts.h"
#include "report/html.h"

namespace tessera::report {
namespace {

std::string speed_sentence(const RunRecord& r) {
  std::string out;
  const auto also = [&](const std::string& what) { out += (out.empty() ? "" : ", ") + what; };
  if (std::isfinite(r.epoch_seconds)) also("an epoch takes " + two_seconds(r.epoch_seconds));
  if (r.step_ms.median > 0)
    also((out.empty() ? "a step takes " : "a step ") + two_seconds(r.step_ms.median * 1e-3));
  if (std::isfinite(r.latency_ms))
    also((out.empty() ? "a batch takes " : "a batch ") + two_seconds(r.latency_ms * 1e-3));
  if (std::isfinite(r.images_per_s)) also(two(r.images_per_s) + " images per second");
  return out.empty() ? "no time was measured." : out + ".";
}

std::string memory_sentence(const RunRecord& r) {
  const std::string whose = r.ranks > 1 ? "the rank that holds most takes" : "memory takes";
  if (r.measured > 0)
    return fmt::format(
        "{} {} at its peak{}.", whose, two_bytes(static_cast<double>(r.measured)),
        r.planned > 0 ? ", " + two_bytes(static_cast<double>(r.planned)) + " were planned" : "");
  return r.planned > 0 ? fmt::format("{} {} at its peak as planned; it was not measured.", whose,
                                     two_bytes(static_cast<double>(r.planned)))
                       : "";
}

std::string step_sentence(const RunRecord& r) {
  const double step = step_of(r.breakdown);
  if (!(step > 0)) return "";
  std::string out = "of a step computing takes " + two_percent(r.breakdown.compute / step);
  if (r.ranks > 1)
    out += fmt::format(", communication that is not hidden {}, waiting for other ranks {}",
                       two_percent(r.breakdown.comm_exposed / step),
                       two_percent(r.breakdown.wait / step));
  if (const WaitedFor w = waited_for(r); w.rank >= 0)
    out += fmt::format(" (mostly for rank {}: the others {} a step)", w.rank,
                       two_seconds(w.ms * 1e-3));
  out += fmt::format(", waiting for data {}, the rest {}", two_percent(r.breakdown.data / step),
                     two_percent(r.breakdown.host / step));
  return out + (std::isfinite(r.bubble)
                    ? fmt::format("; of the pipeline's time {} is bubble.", two_percent(r.bubble))
                    : ".");
}

std::string outcome_sentence(const RunRecord& r) {
  if (!std::isfinite(r.test_top1))
    return std::isfinite(r.loss)
               ? fmt::format("no accuracy was measured; the last loss is {}.", two(r.loss))
               : "no accuracy was measured.";
  return fmt::format("the final accuracy is {}{}{}.", one_decimal(r.test_top1),
                     r.best_top1 > r.test_top1
                         ? fmt::format(" (the best epoch had {})", one_decimal(r.best_top1))
                         : "",
                     std::isfinite(r.loss) ? ", the last loss " + two(r.loss) : "");
}

}  // namespace

std::vector<std::string> run_verdict(const RunRecord& run) {
  std::vector<std::string> out;
  for (const std::string& s :
       {speed_sentence(run), memory_sentence(run), step_sentence(run), outcome_sentence(run)})
    if (!s.empty()) out.push_back(s);
  if (run.skipped > 0)
    out.push_back(fmt::format("{} step{} not finite and changed nothing.", run.skipped,
                              run.skipped == 1 ? " was" : "s were"));
  return out;
}

}  // namespace tessera::report
