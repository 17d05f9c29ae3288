// Hands on what mpirun and the ranks print to the reader. mpirun ends a job whose reader goes away;
// so it writes into pipes of ours, and we hand on what comes for as long as somebody takes it.
#pragma once

#include <atomic>
#include <thread>

namespace tessera::run {

class Relay {
 public:
  Relay();  // Error(memory) when there are no pipes or no thread to be had
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  void become_output() const;          // in the child that becomes mpirun
  void finish();                       // once that has ended: hands on what is left
  bool lost() const { return lost_; }  // something on stdout that a reader may still wait for

 private:
  void work();

  int out_[2] = {-1, -1}, err_[2] = {-1, -1};
  std::atomic<bool> ended_ = false, lost_ = false;
  std::thread thread_;
};

}  // namespace tessera::run
