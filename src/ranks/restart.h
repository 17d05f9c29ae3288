// A job that is started again when a rank hangs or is lost: from its newest checkpoint, on the
// hosts that still answer, with fewer copies of the model where there are fewer (config/shrink.h).
// Convention: what each failure cost is measured from the last step that moved before it to the
// moment when the job is in that step again, and said.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "config/config.h"

namespace tessera::run {

// The cost of a failure, or of several where the job had not come back in between.
class Recovery {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void moved(std::int64_t step,
             Time now);                // the step that the job is in, again and again; -1: none
  void failed(int restart, Time now);  // it has ended, and is started again

  // Once the job is where it was: a sentence; "" otherwise.
  std::string back();
  // The same of a job that has ended before anybody saw it there.
  std::string ended(Time now);

 private:
  std::string text(Time now) const;

  bool pending_ = false, is_back_ = false;
  int restart_ = 0;
  std::int64_t step_ = -1, lost_ = -1, from_ = -1;  // now; at the failure; first after it
  Time moved_ = Time::min(), stood_, noticed_, began_, now_;
};

// Runs the job of this command under mpirun; its exit code. `goes_on`: started again it goes on;
// otherwise run.restarts does not count.
int run_with_restarts(const config::Config& config, const std::string& mpirun, char** argv,
                      bool goes_on);

}  // namespace tessera::run
