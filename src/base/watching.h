// How long threads watch for work before they sleep (base/threads.h). Watching takes CPU time as
// computing does, so whoever asks how busy threads are takes it off.
#pragma once

namespace tessera {

double cpu_seconds_of(int thread);  // of this process, since it started

// While one lives, the calling thread watches; counted from the first watched_seconds() on.
class Watching {
 public:
  Watching();
  ~Watching();
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

 private:
  bool counts_;
};
// CPU seconds that a thread has watched for, until now.
double watched_seconds(int thread);

}  // namespace tessera
