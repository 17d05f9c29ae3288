// When the next checkpoint is due: every so many steps, or (checkpoint.every = "auto") as often as
// what it costs and what a failure would cost have it: Young's interval, sqrt(2 x cost x mean time
// between failures), from the seconds that saving held the loop up. Convention: all ranks hand in
// the same numbers (those of the slowest), so that all find the same step due.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::run {

// Steps between two checkpoints; at least 1.
std::int64_t steps_between(double cost_s, double step_s, double mtbf_s);

class SaveInterval {
 public:
  // auto: only such steps are due, so that who submits steps ahead knows where to wait.
  static constexpr std::int64_t multiple = 8;

  // `every`: steps; 0: never by itself; below 0: auto.
  SaveInterval(std::int64_t every, double mtbf_s) : every_(every), mtbf_s_(mtbf_s) {}

  bool adapts() const { return every_ < 0; }
  bool due(std::int64_t step);
  // A checkpoint of this step held the loop up for cost_s; a step takes step_s.
  void saved(std::int64_t step, double cost_s, double step_s);
  void again(std::int64_t step);  // the next as soon as the first
  // The chosen interval in a sentence, when it has changed much since the last call; else "".
  std::string remark();

 private:
  static constexpr std::int64_t first_steps = 20;  // until the first one that is measured
  std::int64_t every_ = 0, next_ = -1, between_ = 0, told_ = 0;
  double mtbf_s_ = 0, cost_s_ = 0, step_s_ = 0;
};

}  // namespace tessera::run
