// Modified Gram-Schmidt in double, each column twice: rounding cannot leave columns that are not
// orthogonal. A column in which nothing is left (a gradient that was zero, a rank that was less
// than asked for) becomes a random one, or it would stay zero for ever.
#include <cmath>
#include <vector>

#include "base/rng.h"
#include "exec/cpu/reference/instantiate.h"

namespace tessera::exec::cpu {
namespace {

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Leaves in `x` its part at right angles to all of `basis`, with length 1; false when there is next
// to nothing of it.
bool stands_apart(std::vector<double>& x, const std::vector<std::vector<double>>& basis) {
  const double before = std::sqrt(dot(x, x));
  for (int twice = 0; twice < 2; ++twice)
    for (const std::vector<double>& b : basis) {
      const double along = dot(x, b);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] -= along * b[i];
    }
  const double after = std::sqrt(dot(x, x));
  if (!(after > 1e-7 * before)) return false;  // NaN and 0 too
  for (double& value : x) value /= after;
  return true;
}

}  // namespace

template <class T>
void reference_orthogonalise(const Call& call) {
  const auto rows = static_cast<std::size_t>(call.in[0].shape[0]),
             columns = static_cast<std::size_t>(call.in[0].shape[1]);
  const T* x = call.in[0].as<T>();
  T* y = call.out[0].as<T>();
  const Key key = Key{}.with(call.attr<ir::Stream>().stream).with("orthogonalise");
  std::vector<std::vector<double>> basis;
  for (std::size_t c = 0; c < columns; ++c) {
    std::vector<double> column(rows, 0.0);
    if (c < rows) {  // there are no more directions than rows
      for (std::size_t i = 0; i < rows; ++i) column[i] = static_cast<double>(x[i * columns + c]);
      for (std::uint64_t draw = 0; !stands_apart(column, basis); ++draw)
        for (std::size_t i = 0; i < rows; ++i) column[i] = normal(key.with(c).with(draw), i);
      basis.push_back(column);
    }
    for (std::size_t i = 0; i < rows; ++i) y[i * columns + c] = static_cast<T>(column[i]);
  }
}
REFERENCE(orthogonalise)

}  // namespace tessera::exec::cpu
