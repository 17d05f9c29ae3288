// Sums over dims, accumulated in double in the order of the elements.
#include "exec/common/index.h"
#include "exec/cpu/reference/instantiate.h"

namespace tessera::exec::cpu {

// y[letters of the result] = sum of x over the other letters
template <class T>
void reference_sum(const Call& call) {
  const OperandLetters letters = parse_letters(call.attr<ir::Sum>().sig);
  const Tensor& x = call.in[0];
  Extents extents;
  extents.bind(letters.in[0], x.shape);
  const std::string summed = filter(letters.in[0], [&](char c) { return !has(letters.out, c); });
  const auto kept_at = offsets(letters.out, extents, letters.in[0], x.shape),
             summed_at = offsets(summed, extents, letters.in[0], x.shape);
  std::vector<double> sums(kept_at.size());
  for (const std::int64_t from : summed_at)
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += x.as<T>()[kept_at[i] + from];
  for (std::size_t i = 0; i < sums.size(); ++i) call.out[0].as<T>()[i] = static_cast<T>(sums[i]);
}

template <class T>
double squares(const Tensor& x) {
  double sum = 0;
  for (std::int64_t i = 0; i < x.elements(); ++i)
    sum += static_cast<double>(x.as<T>()[i]) * x.as<T>()[i];
  return sum;
}
template <class T>
void reference_sumsq(const Call& call) {
  call.out[0].as<T>()[0] = static_cast<T>(squares<T>(call.in[0]));
}
template <class T>
void reference_alarm(const Call& call) {
  call.out[0].as<T>()[0] = static_cast<T>(alarm_of(squares<T>(call.in[0])));
}

REFERENCE(sum)
REFERENCE(sumsq)
REFERENCE(alarm)

}  // namespace tessera::exec::cpu
