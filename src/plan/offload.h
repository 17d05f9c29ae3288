// Equations over buffers that rest away from the device (ir::Home) are done in pieces: a piece of
// every such buffer is fetched into the arena, the equation is done there, and what it changed is
// stowed, while the piece after it comes and the one before it goes. Convention: only equations
// that work element by element can be done so; that is all that ever reads an optimizer's state.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/plan.h"

namespace tessera::plan {

struct Piece {
  std::size_t eqn = 0;
  std::int64_t begin = 0, size = 0;  // elements
};

// The pieces of all equations of a program, in their order, and where each lies in the staging: a
// ring of places, of which each holds one piece.
class Pieces {
 public:
  Pieces(const ir::Program& program, const Assignment& a, const Target& target, bool overlap);

  // Buffers of one equation that are away, one entry each; their pieces lie side by side.
  struct Away {
    int base = 0;
    std::int64_t offset = 0;  // in the buffer
    bool read = false, written = false;
    bool operator==(const Storage& s) const { return s.base == base && s.offset == offset; }
  };
  struct Cut {
    std::vector<Away> away;
    std::int64_t elements = 0, piece = 0;  // of the whole, of one piece
    std::int64_t line = 0;                 // bytes from one buffer's piece to the next one's
  };

  const Cut* of(std::size_t eqn) const { return cuts_[eqn] ? &*cuts_[eqn] : nullptr; }
  const std::vector<Piece>& list() const { return list_; }
  // With overlap one piece comes, one is worked on and one goes.
  std::size_t places() const { return places_; }
  std::size_t ahead() const { return places_ > 1 ? 1 : 0; }  // pieces that are fetched early
  std::int64_t bytes() const { return static_cast<std::int64_t>(places_) * place_bytes_; }
  // The place in the staging of what the n-th piece has of the k-th buffer.
  std::int64_t place(std::size_t n, std::size_t k) const {
    return static_cast<std::int64_t>(n % places_) * place_bytes_ +
           static_cast<std::int64_t>(k) * cuts_[list_[n].eqn]->line;
  }

 private:
  std::vector<std::optional<Cut>> cuts_;  // per equation
  std::vector<Piece> list_;
  std::size_t places_;
  std::int64_t place_bytes_ = 0;
};

}  // namespace tessera::plan
