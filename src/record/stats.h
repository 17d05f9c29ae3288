// Numbers of points: what is measured, its median over repeats with the spread, how points are
// named, and which of them form a series. Convention: a spread is from the least to the greatest
// repeat; two values differ only where both have at least two repeats and the spreads do not meet.
// Only runs that are done count.
#pragma once

#include <string>
#include <vector>

#include "record/study.h"

namespace tessera::report {

struct Spread {
  double median = kUnknown, mean = kUnknown, low = kUnknown, high = kUnknown;
  int n = 0;
  bool known() const { return n > 0; }
  double wide() const { return high - low; }
};
Spread spread_of(std::vector<double> values);  // what is not finite is left out

using Measure = double (*)(const RunRecord&);
Spread spread_of(const Point& point, Measure measure);
// Whether what was measured tells them apart: apart, or no difference that the spread allows to
// tell, or one repeat only.
enum class Difference : std::uint8_t { unknown, single, within, beyond };
Difference difference(const Spread& a, const Spread& b);

namespace measures {
double epoch_seconds(const RunRecord& r);
double step_seconds(const RunRecord& r);
double latency_seconds(const RunRecord& r);
double images_per_s(const RunRecord& r);
double mfu(const RunRecord& r);
double wall(const RunRecord& r);
double top1(const RunRecord& r);
double best_top1(const RunRecord& r);
double loss(const RunRecord& r);  // of the last step
double test_loss(const RunRecord& r);
double planned(const RunRecord& r);  // bytes
double measured(const RunRecord& r);
double comm_bytes(const RunRecord& r);
double ring_bytes(const RunRecord& r);
double bubble(const RunRecord& r);
double parts_seconds(const RunRecord& r);  // layers: the whole pass
}  // namespace measures

// The "time" of a part: of an epoch where runs have epochs, of a step where not, of a batch in
// inference.
struct TimeMeasure {
  Measure of = nullptr;
  std::string what;   // "an epoch"
  std::string label;  // "seconds per epoch"
};
TimeMeasure time_of(const Part& part);
// The "memory" of a part: as measured where all runs did, else (inference) as planned.
struct MemoryMeasure {
  Measure of = nullptr;
  bool planned = false;
};
MemoryMeasure memory_of(const Part& part);

// The point that a technique is compared with: the first technique's point with the same axes;
// nullptr where there is none.
const Point* baseline_of(const Part& part, const Point& point);
// The last step's loss less that of `base`, repeat by repeat: both have the same seed.
std::vector<double> losses_apart(const Point& point, const Point& base);
// A single run (`tessera report RUNFOLDER`): no repeats, no seeds, nothing to compare with.
bool is_one_run(const Part& part);

std::vector<const RunRecord*> records_of(const Point& point);
Breakdown breakdown_of(const Point& point);  // mean over its runs, of each the mean over ranks
double step_of(const Breakdown& b);          // ms; hidden communication is beside it
// The rank that the others waited for the most, where that takes at least a twentieth of a step;
// rank -1: there is none.
struct WaitedFor {
  int rank = -1;
  double ms = 0;  // of a step, mean of the others
};
WaitedFor waited_for(const RunRecord& run);
double slowest_compute(const Point& point);  // ms; of the slowest rank, mean over runs
int ranks_of(const Point& point);            // 0: not known yet

std::string axis_words(const std::string& key, const std::string& value);  // "2 ranks", "batch 64"
std::string axis_label(const std::string& key);  // "ranks", "global batch"
// By technique and those axes that differ within the part; `without`: an axis that is left out. ""
// when nothing differs.
std::string point_name(const Part& part, const Point& point, const std::string& without = "");
double axis_value(const Part& part, const Point& point);  // along x; NaN where it is no number

struct PointSeries {
  std::string name;                                     // "" when there is only one
  std::vector<std::pair<double, const Point*>> points;  // by x
};
std::vector<PointSeries> series_of(const Part& part);

}  // namespace tessera::report
