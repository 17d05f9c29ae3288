// Normalisations over the last dim and their gradients, one row at a time.
// Convention: a row is read completely before its result is written, so results may lie over
// operands.
#include <algorithm>
#include <cmath>

#include "exec/cpu/reference/formulas.h"
#include "exec/cpu/reference/instantiate.h"
#include "exec/cpu/reference/quantised.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

struct Rows {
  int64_t count = 0, width = 1;
};
Rows rows_of(const Tensor& x) {
  const int64_t width = x.shape.back();
  return {width == 0 ? 0 : x.elements() / width, width};
}

struct Moments {
  double mean, rstd;
};
// mean = sum x / c, rstd = 1 / sqrt(sum (x - mean)^2 / c + eps)
template <class T>
Moments moments(const T* x, int64_t c, double eps) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < c; ++i) sum += x[i];
  const double mean = sum / static_cast<double>(c);
  for (int64_t i = 0; i < c; ++i) squares += (x[i] - mean) * (x[i] - mean);
  return {mean, 1.0 / std::sqrt(squares / static_cast<double>(c) + eps)};
}

// y = (x - mean) rstd g + b; y may be x
template <class T>
void normalise(const Call& call, int64_t row, const T* x, const T* g, const T* b,
               std::size_t first_result) {
  const int64_t c = call.in[0].shape.back();
  const Moments m = moments(x, c, call.attr<ir::Norm>().eps);
  if (T* y = call.out[first_result].as<T>())
    for (int64_t i = 0; i < c; ++i)
      y[row * c + i] = static_cast<T>((x[i] - m.mean) * m.rstd * g[i] + b[i]);
  if (T* mean = call.out[first_result + 1].as<T>()) mean[row] = static_cast<T>(m.mean);
  if (T* rstd = call.out[first_result + 2].as<T>()) rstd[row] = static_cast<T>(m.rstd);
}

}  // namespace

template <class T>
void reference_layer_norm(const Call& call) {
  if (ir::is_quantised(call.out[0].dtype)) return norm_quantised(call, false);
  const Rows rows = rows_of(call.in[0]);
  for (int64_t r = 0; r < rows.count; ++r)
    normalise(call, r, call.in[0].as<T>() + r * rows.width, call.in[1].as<T>(), call.in[2].as<T>(),
              0);
}

// s = x + r, then layer_norm(s)
template <class T>
void reference_add_norm(const Call& call) {
  if (ir::is_quantised(call.out[1].dtype)) return norm_quantised(call, true);
  const Rows rows = rows_of(call.in[0]);
  std::vector<T> s(static_cast<std::size_t>(rows.width));
  for (int64_t r = 0; r < rows.count; ++r) {
    const T *x = call.in[0].as<T>() + r * rows.width,
            *residual = call.in[1].as<T>() + r * rows.width;
    for (int64_t i = 0; i < rows.width; ++i) s[i] = x[i] + residual[i];
    if (call.out[0]) std::copy(s.begin(), s.end(), call.out[0].as<T>() + r * rows.width);
    normalise(call, r, s.data(), call.in[2].as<T>(), call.in[3].as<T>(), 1);
  }
}

// h = (x - mean) rstd, e = dy g:  dx = rstd (e - mean(e) - h mean(e h)) [+ addend],  dg = sum_rows
// dy h,  db = sum_rows dy; made by fusion: dx once more, and its sum over rows
template <class T>
void reference_layer_norm_grad(const Call& call) {
  const Rows rows = rows_of(call.in[0]);
  const int64_t c = rows.width;
  const T* g = call.in[4].as<T>();
  const T* addend = call.in.size() > 5 ? call.in[5].as<T>() : nullptr;
  std::vector<double> dg(static_cast<std::size_t>(c)), db(dg.size()), total(dg.size()),
      h(dg.size()), e(dg.size());
  const Tensor copy_of_dx = call.out.size() > 3 ? call.out[3] : Tensor();
  for (int64_t r = 0; r < rows.count; ++r) {
    const T *dy = call.in[0].as<T>() + r * c, *x = call.in[1].as<T>() + r * c;
    const double mean = call.in[2].as<T>()[r], rstd = call.in[3].as<T>()[r];
    double mean_e = 0, mean_eh = 0;
    for (int64_t i = 0; i < c; ++i) {
      h[i] = (x[i] - mean) * rstd;
      e[i] = static_cast<double>(dy[i]) * g[i];
      mean_e += e[i] / static_cast<double>(c);
      mean_eh += e[i] * h[i] / static_cast<double>(c);
      dg[i] += dy[i] * h[i];
      db[i] += dy[i];
    }
    for (int64_t i = 0; i < c; ++i) {
      const T value = static_cast<T>(rstd * (e[i] - mean_e - h[i] * mean_eh) +
                                     (addend ? addend[r * c + i] : T(0)));
      if (T* dx = call.out[0].as<T>()) dx[r * c + i] = value;
      if (T* copy = copy_of_dx.as<T>()) copy[r * c + i] = value;
      total[i] += value;
    }
  }
  for (int64_t i = 0; i < c; ++i) {
    if (call.out[1]) call.out[1].as<T>()[i] = static_cast<T>(dg[i]);
    if (call.out[2]) call.out[2].as<T>()[i] = static_cast<T>(db[i]);
    if (call.out.size() > 4 && call.out[4]) call.out[4].as<T>()[i] = static_cast<T>(total[i]);
  }
}

// y = exp(x - lse)
template <class T>
void reference_softmax(const Call& call) {
  const Rows rows = rows_of(call.in[0]);
  for (int64_t r = 0; r < rows.count; ++r) {
    const T* x = call.in[0].as<T>() + r * rows.width;
    const double lse = log_sum_exp(x, rows.width);
    for (int64_t i = 0; i < rows.width; ++i)
      call.out[0].as<T>()[r * rows.width + i] = static_cast<T>(std::exp(x[i] - lse));
  }
}

// y = x - lse
template <class T>
void reference_log_softmax(const Call& call) {
  const Rows rows = rows_of(call.in[0]);
  for (int64_t r = 0; r < rows.count; ++r) {
    const T* x = call.in[0].as<T>() + r * rows.width;
    const double lse = log_sum_exp(x, rows.width);
    for (int64_t i = 0; i < rows.width; ++i)
      call.out[0].as<T>()[r * rows.width + i] = static_cast<T>(x[i] - lse);
  }
}

// dx = y (g - sum g y): the Jacobian diag(y) - y y^T applied to g
template <class T>
void reference_softmax_grad(const Call& call) {
  const Rows rows = rows_of(call.in[0]);
  for (int64_t r = 0; r < rows.count; ++r) {
    const T *y = call.in[0].as<T>() + r * rows.width, *g = call.in[1].as<T>() + r * rows.width;
    double sum = 0;
    for (int64_t i = 0; i < rows.width; ++i) sum += static_cast<double>(g[i]) * y[i];
    for (int64_t i = 0; i < rows.width; ++i)
      call.out[0].as<T>()[r * rows.width + i] = static_cast<T>(y[i] * (g[i] - sum));
  }
}

// dx = g - exp(y) sum g
template <class T>
void reference_log_softmax_grad(const Call& call) {
  const Rows rows = rows_of(call.in[0]);
  for (int64_t r = 0; r < rows.count; ++r) {
    const T *y = call.in[0].as<T>() + r * rows.width, *g = call.in[1].as<T>() + r * rows.width;
    double sum = 0;
    for (int64_t i = 0; i < rows.width; ++i) sum += g[i];
    for (int64_t i = 0; i < rows.width; ++i)
      call.out[0].as<T>()[r * rows.width + i] =
          static_cast<T>(g[i] - std::exp(static_cast<double>(y[i])) * sum);
  }
}

REFERENCE(layer_norm)
REFERENCE(layer_norm_grad)
REFERENCE(add_norm)
REFERENCE(softmax)
REFERENCE(softmax_grad)
REFERENCE(log_softmax)
REFERENCE(log_softmax_grad)

}  // namespace tessera::exec::cpu
