// How busy threads are: the CPU time of each over the time that passed, without what it took to
// watch for work. Being set aside for another process takes none.
#pragma once

#include <vector>

namespace tessera::run {

// Watches the calling thread and all threads that are started between its construction and the
// first begin(): an executor's.
class ThreadWatch {
 public:
  ThreadWatch();

  void begin();  // a stretch of time that counts
  void end();
  // The share of these stretches in which each thread computed; the calling thread is the first,
  // the others follow in the order in which they were started.
  std::vector<double> busy() const;
  // CPU seconds that each computed since it was started; after the first begin().
  std::vector<double> computed() const;

 private:
  struct Thread {
    int id = 0;
    double began = 0, spent = 0;
  };
  std::vector<int> before_;
  std::vector<Thread> threads_;
  double began_ = 0, passed_ = 0;
};

}  // namespace tessera::run
