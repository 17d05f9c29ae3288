// Checks of keys against one another that change no key: of the augmentation, of the optimizer and
// of what travels between ranks, or between a device and where state rests. Convention: pure
// functions of a configuration; nothing throws.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/problem.h"

namespace tessera::config {

struct CheckOutcome {
  std::vector<Finding> problems;
  std::vector<std::string> notes;  // settings that change nothing, and what follows from others
};

// The value of a key ("model.heads") as a TOML file has it.
std::string value_text(const Config& config, std::string_view name);

CheckOutcome augmentation_findings(const Config& config);
// `trains`: the peak of the learning rate is worth a note.
CheckOutcome optimizer_findings(const Config& config, bool trains);
// `readable_compression`: parallel.compress parses.
CheckOutcome communication_findings(const Config& config, bool readable_compression);

}  // namespace tessera::config
