#include "session/room.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/process.h"

namespace tessera::run {
namespace {

// The sum over the ranks of this machine.
std::int64_t sum_on_this_machine(const Ranks& ranks, std::int64_t mine, int* count) {
  const std::string host = host_name();
  std::int64_t sum = 0;
  for (const std::string& text : ranks.gather_text(fmt::format("{} {}", mine, host))) {
    const std::size_t space = text.find(' ');
    if (text.substr(space + 1) != host) continue;
    sum += std::stoll(text.substr(0, space));
    ++*count;
  }
  return sum;
}

}  // namespace

void check_room(const Ranks& ranks, std::int64_t bytes, std::int64_t available) {
  int here = 0;
  const std::int64_t all = sum_on_this_machine(ranks, bytes, &here);
  ranks.together([&] {
    if (here == 1 || all <= available) return;  // of a single rank the executor says it
    throw Error(
        ErrorKind::memory,
        fmt::format("the {} ranks of this machine need {} MiB together and the system has {} MiB",
                    here, all >> 20, available >> 20),
        "memory",
        "use a smaller micro-batch (--accumulate), --set parallel.recompute=full, fewer ranks a "
        "machine or a smaller model; "
        "`tessera explain` shows the peak without running");
  });
}

plan::Footprint reserve(Session& session, const std::vector<PlanKey>& plans, const Ranks& ranks) {
  plan::Footprint room;
  ranks.together([&] {
    for (const PlanKey& key : plans) room.add(session.planned(key).plan);
  });
  const config::Config& config = session.config();
  const int threads = static_cast<int>(config.run.threads);
  try {
    check_room(ranks, session.executor().more_for(room),
               exec::device_info(config.run.device, threads).memory());
    ranks.together([&] { session.executor().reserve(room); });
  } catch (Error& error) {
    if (config.data.held > 0 && error.kind == ErrorKind::memory)
      error.and_also(
          fmt::format("{} pictures stay on the device; --set data.resident=no feeds "
                      "them instead",
                      config.data.held));
    throw;
  }
  return room;
}

}  // namespace tessera::run
