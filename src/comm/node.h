// The ranks of one machine and the memory that they reach of each other. Each rank has one file
// without a name (memfd), larger than the machine's memory and empty, for all that it shares; every
// other rank on the machine has it mapped whole, so that a place in the file is a place in memory
// from the moment its owner takes it. Convention: a place is an offset in its owner's file; ranks
// are those of the world that the Node was made for.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"

namespace tessera::comm {

// Which machine this is: two ranks with the same answer share memory. TESSERA_HOST overrides it
// (machines that only pretend, for tests).
std::string machine_name();

class Node : public std::enable_shared_from_this<Node> {
 public:
  // All ranks of the world call it. Null, with the reason, when one of them cannot reach another
  // one on its machine.
  static std::shared_ptr<Node> make(Comm& world, const std::string& machine, std::string& reason);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  int rank() const { return rank_; }
  int ranks_here() const { return here_; }
  int machine_of(int rank) const {
    return peers_[static_cast<std::size_t>(rank)].machine;
  }  // the first rank on it
  bool reaches(int rank) const { return peers_[static_cast<std::size_t>(rank)].base != nullptr; }

  // Places in this rank's file: whole pages, zeroed. -1 when there is no room left.
  std::int64_t take(std::int64_t bytes);
  void give(std::int64_t place, std::int64_t bytes);
  std::byte* at(int rank, std::int64_t place) const {
    return peers_[static_cast<std::size_t>(rank)].base + place;
  }

  std::unique_ptr<Memory> allocate(std::int64_t shared, std::int64_t own);
  std::int64_t place_of(const std::byte* data,
                        std::int64_t bytes) const;  // in memory from allocate(); -1 when it is not

  bool alive(int rank) const;
  // Gives a place back once `unused` says that no other rank looks at it any more; asked now and
  // then.
  void give_later(std::int64_t place, std::int64_t bytes, std::function<bool()> unused);

 private:
  struct Peer {
    std::byte* base = nullptr;
    std::int64_t bytes = 0;
    int machine = 0;
    std::int64_t process = 0, born = 0;
  };
  struct Segment {
    std::int64_t bytes = 0, place = 0;
  };
  struct Later {
    std::int64_t place = 0, bytes = 0;
    std::function<bool()> unused;
  };
  class Reachable;

  Node() = default;
  bool open_own(std::uint64_t token);
  bool open_peer(Peer& peer, int file, std::uint64_t token);
  void clean_up();

  int rank_ = 0, here_ = 1, file_ = -1;
  std::vector<Peer> peers_;
  std::map<std::int64_t, std::int64_t> free_;     // place, bytes; neighbours are joined
  std::map<const std::byte*, Segment> segments_;  // by address
  std::vector<Later> later_;
};

}  // namespace tessera::comm
