#include "session/room.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/process.h"
#include "config/devices.h"

namespace tessera::run {
namespace {

// The sum over the ranks of this machine that run on the same device.
std::int64_t sum_on_this_machine(const Ranks& ranks, const std::string& device, std::int64_t mine,
                                 int* count) {
  const std::string host = device + " on " + host_name();
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

void check_room(const Ranks& ranks, std::int64_t bytes, std::int64_t available,
                const std::string& device) {
  int here = 0;
  const std::int64_t all = sum_on_this_machine(ranks, device, bytes, &here);
  ranks.together([&] {
    if (here == 1 || all <= available) return;  // of a single rank the executor says it
    throw Error(
        ErrorKind::memory,
        fmt::format("the {} ranks of this machine need {} MB together and the system has {} MB",
                    here, all / 1'000'000, available / 1'000'000),
        "memory",
        "use a smaller micro-batch (--accumulate), --set parallel.recompute=full, fewer ranks a "
        "machine or a smaller model; "
        "`tessera explain` shows the peak without running");
  });
}

plan::Footprint reserve(Session& session, const std::vector<PlanKey>& plans, const Ranks& ranks) {
  plan::Footprint room;
  // Ranks on different devices may lack different kernels.
  ranks.together_telling_all([&] {
    for (const PlanKey& key : plans) room.add(session.planned(key).plan);
  });
  const config::Config& config = session.config();
  const int threads = static_cast<int>(config.run.threads);
  try {
    const std::string device = config::device_of(config, session.rank());
    check_room(ranks, session.executor().more_for(room),
               exec::device_info(device, threads).memory(), device);
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
