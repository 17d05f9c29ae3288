// The memory that several plans need together: persistent buffers are shared by name, and the arena
// is as large as the largest of them, with what its runs are fed with and leave behind it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "plan/plan.h"

namespace tessera::plan {

class Footprint {
 public:
  struct Room {
    std::int64_t bytes = 0;
    bool shared = false;  // some plan hands it to other ranks
    ir::Home home = ir::Home::device;
    bool aside = false;  // no plan reads it in every run (prepare.h)
  };

  // Two plans that disagree about the size of a buffer are a mistake: Error(internal).
  void add(const Plan& plan);

  const std::map<std::string, Room, std::less<>>& persistent() const { return persistent_; }
  std::int64_t persistent_bytes() const { return bytes_on(ir::Home::device); }
  std::int64_t bytes_on(ir::Home home) const;  // of persistent buffers
  std::int64_t arena_bytes() const { return arena_; }
  std::int64_t shared_bytes() const {
    return shared_;
  }  // the first of the arena: what ranks hand to each other
  // Bytes that an executor allocates on its device once it has made room for all of these plans.
  std::int64_t bytes() const { return persistent_bytes() + arena_; }

 private:
  std::map<std::string, Room, std::less<>> persistent_;
  std::int64_t arena_ = 0, shared_ = 0;
};

Footprint footprint_of(const Plan& plan);

}  // namespace tessera::plan
