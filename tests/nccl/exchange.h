// Ranks of one machine that hand bytes to each other, as processes or as threads: a mailbox per
// ordered pair of ranks, in memory that all of them map by its name. Convention: it is a tool for
// tests, so it is simple and slow; messages between two ranks arrive in the order in which they
// were sent.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

namespace tessera::test {

class Exchange {
 public:
  // The first that comes makes the memory; the name goes away when all have come, or
  // when one leaves before that.
  Exchange(const std::string& name, int ranks, int rank);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  bool wait_for_all();  // false: it was closed meanwhile
  struct Part {
    int peer = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  // Everything that is sent and received at once. False: it was closed, or a rank is lost, before
  // that was done.
  bool run(std::vector<Part> sends, std::vector<Part> receives);
  int lost() const { return lost_; }  // a rank whose process is gone; -1: none
  void close() { closed_ = true; }    // from any thread: what is under way ends soon

 private:
  struct Head;
  struct Box;
  Head& head() const;
  Box& box(int from, int to) const;
  bool look_around();  // false: closed, or a rank is lost
  bool move(std::vector<Part>& parts, bool out);

  const std::string name_;
  const int ranks_, rank_;
  std::size_t bytes_ = 0;
  std::byte* memory_ = nullptr;
  std::atomic<bool> closed_ = false;
  std::atomic<int> lost_ = -1;
  long idle_ = 0;
};

}  // namespace tessera::test
