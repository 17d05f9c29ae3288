#include "checkpoint/checkpoint_room.h"

#include <fmt/format.h>

#include "base/check.h"
#include "checkpoint/state_tensors.h"
#include "files/disk.h"

namespace tessera::run {

void require_room_for_checkpoint(Session& session, const Ranks& ranks,
                                 const std::filesystem::path& run) {
  std::int64_t mine = 1 << 16;  // headers and the manifest
  for (const StateTensor& t : state_tensors(session))
    if (t.keeps) mine += t.bytes();
  const double all = ranks.total(static_cast<double>(mine));
  ranks.together([&] {
    const auto room = files::free_bytes(run);
    if (!ranks.first() || !room || all <= static_cast<double>(*room)) return;
    throw Error(ErrorKind::disk,
                fmt::format("a checkpoint of this training takes {:.1f} MB and {:.1f} MB are free",
                            all * 1e-6, static_cast<double>(*room) * 1e-6),
                run.string(),
                "make room, or choose another disk with --out; nothing was trained yet");
  });
}

}  // namespace tessera::run
