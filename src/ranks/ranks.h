// Agreements of the ranks of a run between steps. Convention: all ranks make the same calls in the
// same order; with one rank (no world) every call answers at once.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "comm/comm.h"

namespace tessera::run {

// An error that every rank knows of: one of them speaks for all.
struct AgreedError : Error {
  using Error::Error;
};

class Ranks {
 public:
  explicit Ranks(comm::Comm* world) : world_(world) {}

  comm::Comm* world() const { return world_; }
  int rank() const { return world_ ? world_->rank() : 0; }
  int size() const { return world_ ? world_->size() : 1; }
  bool first() const { return rank() == 0; }
  bool any(bool mine) const;  // true on all ranks when it is on one
  double total(double mine) const;
  double most(double mine) const;
  std::vector<double> gather(
      std::span<const double> mine) const;  // of all ranks, one after the other; as many from each
  std::vector<std::string> gather_text(const std::string& mine) const;  // one per rank
  void barrier() const;
  // Runs the body on every rank; when it fails on some, all throw the error of the first of these
  // as AgreedError.
  void together(const std::function<void()>& body) const;
  // The same, but the error also says what failed on the other ranks.
  void together_telling_all(const std::function<void()>& body) const;

 private:
  comm::Comm* world_;
};

}  // namespace tessera::run
