// Scaling of a part: speed-up and efficiency with their spread, Amdahl's law fitted to them, and
// what bounds them on this machine. Convention: everything is relative to the fewest ranks of a
// series, which need not be one; a speed-up's spread is the widest that the repeats of both points
// allow.
#pragma once

#include <string>
#include <vector>

#include "record/stats.h"

namespace tessera::report {

struct ScalingPoint {
  const Point* point = nullptr;
  double ranks = 1, ideal = 1;  // ideal: ranks over the fewest ranks
  Spread time;                  // seconds
  double speedup = kUnknown, low = kUnknown, high = kUnknown;
  double efficiency = kUnknown;
  // The speed-up if nothing but the slowest rank's computing took time; of strong scaling, where
  // the breakdown is known.
  double attainable = kUnknown;
  double cores =
      kUnknown;  // min(ideal, cores of all hosts / threads): more ranks than that share cores
  double exposed = kUnknown, wait = kUnknown, data = kUnknown,
         host = kUnknown;     // shares of the step
  double longer = kUnknown;   // by how much a rank's computing exceeds its share of the first
                              // point's, as a share of that
  double slowest = kUnknown;  // by how much the slowest rank's computing exceeds the mean, as a
                              // share of the step
};

struct Scaling {
  std::string name, axis;  // of the series; the key along which it scales
  bool weak = false;
  TimeMeasure time;
  std::vector<ScalingPoint> points;
  double serial = kUnknown;  // Amdahl's share, strong scaling with at least two numbers of ranks
  int fitted =
      0;  // from how many points beyond the first: those whose ranks have cores of their own
};
std::vector<Scaling> scaling_of(const Part& part);
bool shares_cores(const ScalingPoint& p);

// s of 1/S = s + (1-s)/n by least squares, within 0 and 1; NaN when no n exceeds 1.
double amdahl(const std::vector<std::pair<double, double>>& n_and_speedup);
double amdahl_speedup(double serial, double n);

}  // namespace tessera::report
