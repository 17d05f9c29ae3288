// How what crosses ranks gets from card to card: by NCCL where every rank has a card of its own, or
// through the host. Convention: all ranks decide from the same table, so they decide the same.
#pragma once

#include <string>
#include <vector>

#include "comm/comm.h"
#include "config/config.h"
#include "exec/device.h"

namespace tessera::run {

// The card of a rank, as the rank reports it.
struct RankCard {
  std::string host, card;    // card: no other card of any machine is called so
  std::string without_nccl;  // why NCCL cannot be used there; empty: it can
  std::string version;       // of NCCL
};

struct Carriage {
  exec::Carrier by = exec::Carrier::host;
  std::string text;  // what was taken and why, in a few words; empty: nothing crosses cards
};

// `all`: one per rank, in order. Error(usage) or Error(device) where parallel.comm asks for NCCL
// and it cannot be.
Carriage choose_carrier(const config::Config& config, const std::vector<RankCard>& all);
// The same for the ranks of a world, which all call it; null: one rank. What is thrown is agreed
// on.
Carriage agree_on_carrier(const config::Config& config, comm::Comm* world);

// Ranks of a world on different devices, before anything of the run is there; all call it. Each
// looks whether its device is there and computes in the configuration's element type. Error(device)
// that says of every rank what it lacks.
void check_devices(const config::Config& config, comm::Comm* world);

// Before this process starts `ranks` processes on this machine: Error where parallel.comm asks for
// NCCL and there are fewer cards than ranks, or no NCCL. A child looks at the driver, because this
// process still forks.
void check_cards_before_launch(const config::Config& config, int ranks);

// Set for tests with a library that stands for NCCL: ranks may share a card.
inline constexpr const char* shared_card_variable = "TESSERA_NCCL_SHARED_CARD";

}  // namespace tessera::run
