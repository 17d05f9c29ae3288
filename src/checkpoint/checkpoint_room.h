// Whether a checkpoint of a training will fit on the disk, asked before its first step.
#pragma once

#include <filesystem>

#include "ranks/ranks.h"
#include "session/session.h"

namespace tessera::run {

// Error(disk), on all ranks, where one checkpoint of all of them takes more than is free.
void require_room_for_checkpoint(Session& session, const Ranks& ranks,
                                 const std::filesystem::path& run);

}  // namespace tessera::run
