// A run that was submitted: what was noted when it was, and its results once they are there.
#pragma once

#include <exception>

#include "exec/cpu/flights.h"
#include "exec/cuda/loaded.h"

namespace tessera::exec::cuda {

struct CudaLoaded::Flight {
  int copy = 0;
  std::int64_t number = 0, submitted_ns = 0;
  bool spans = false, observed = false;
  Timeline host{};  // what the host did for it: messages
  bool collected = false;
  Results results{};
  std::exception_ptr error{};
};

struct CudaLoaded::Run final : Ticket::Run {
  Run(CudaLoaded& plan, std::shared_ptr<Flight> of) : loaded(plan), flight(std::move(of)) {}
  bool done() override;
  Results wait() override;
  CudaLoaded& loaded;
  std::shared_ptr<Flight> flight;
};

}  // namespace tessera::exec::cuda
