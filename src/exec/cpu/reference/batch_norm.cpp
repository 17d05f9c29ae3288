// Batch norm from sums, per group of samples and channel.
#include <cmath>
#include <vector>

#include "exec/cpu/reference/instantiate.h"
#include "ir/type.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

// body(element, group, channel) for every element of x [b, ..., c].
template <class Body>
void for_each_value(const ir::Shape& x, int64_t groups, const Body& body) {
  const int64_t channels = x.back(), per_sample = x[0] == 0 ? 0 : ir::elements(x) / x[0];
  for (int64_t g = 0; g < groups; ++g) {
    const ir::Range samples = ir::split(x[0], static_cast<int>(groups), static_cast<int>(g));
    for (int64_t i = samples.begin * per_sample; i < (samples.begin + samples.size) * per_sample;
         ++i)
      body(i, g, i % channels);
  }
}

// How many values of each channel are behind the sums of a group.
double count_of(const ir::BatchNorm& attr, int64_t group) {
  return static_cast<double>(
      ir::split(attr.samples, static_cast<int>(attr.groups), static_cast<int>(group)).size *
      attr.pixels);
}

template <class T>
void write(const std::vector<double>& values, const Tensor& out) {
  if (!out) return;
  for (std::size_t i = 0; i < values.size(); ++i) out.as<T>()[i] = static_cast<T>(values[i]);
}

}  // namespace

// s = sum (x - shift), q = sum (x - shift)^2
template <class T>
void reference_moments(const Call& call) {
  const int64_t groups = call.attr<ir::BatchNorm>().groups, channels = call.in[0].shape.back();
  std::vector<double> sum(static_cast<std::size_t>(groups * channels)), squares(sum.size());
  for_each_value(call.in[0].shape, groups, [&](int64_t i, int64_t g, int64_t c) {
    const double x = static_cast<double>(call.in[0].as<T>()[i]) - call.in[1].as<T>()[c];
    sum[g * channels + c] += x;
    squares[g * channels + c] += x * x;
  });
  write<T>(sum, call.out[0]);
  write<T>(squares, call.out[1]);
}

// mean = shift + s/N, variance = q/N - (s/N)^2, y = (x - mean) / sqrt(variance + eps) gain + bias
// (+ addend), then relu where it is asked for
template <class T>
void reference_batch_norm(const Call& call) {
  const auto& attr = call.attr<ir::BatchNorm>();
  const int64_t channels = call.in[0].shape.back();
  const bool two = call.in.size() == 12;
  std::vector<double> mean[2], rstd[2];
  for (std::size_t k = 0; k < (two ? 2u : 1u); ++k) {
    const Tensor &sum = call.in[6 * k + 1], &squares = call.in[6 * k + 2],
                 &shift = call.in[6 * k + 3];
    for (int64_t i = 0; i < attr.groups * channels; ++i) {
      const double n = count_of(attr, i / channels), offset = sum.as<T>()[i] / n;
      const double variance = std::max(0.0, squares.as<T>()[i] / n - offset * offset);
      mean[k].push_back(offset + shift.as<T>()[i % channels]);
      rstd[k].push_back(1.0 / std::sqrt(variance + attr.eps));
    }
  }
  // The norm whose operands begin with in[x].
  const auto norm = [&](std::size_t x, int64_t i, int64_t at, int64_t c) {
    return (call.in[x].as<T>()[i] - mean[x / 6][at]) * rstd[x / 6][at] * call.in[x + 4].as<T>()[c] +
           call.in[x + 5].as<T>()[c];
  };
  if (call.out[0])
    for_each_value(call.in[0].shape, attr.groups, [&](int64_t i, int64_t g, int64_t c) {
      const int64_t at = g * channels + c;
      double y = norm(0, i, at, c);
      if (two) y += norm(6, i, at, c);
      if (call.in.size() == 7) y += call.in[6].as<T>()[i];
      call.out[0].as<T>()[i] = static_cast<T>(attr.relu && y < 0 ? 0.0 : y);
    });
  for (std::size_t k = 0; 2 * k + 1 < call.out.size(); ++k) {
    write<T>(mean[k], call.out[2 * k + 1]);
    write<T>(rstd[k], call.out[2 * k + 2]);
  }
}

// Whether a ReLU behind the norm lets a gradient through: where it is above 0.
template <class T>
bool is_open(T x, T mean, T rstd, T gain, T bias) {
  return static_cast<T>((x - static_cast<double>(mean)) * rstd * gain + bias) > 0;
}

// sum dy, and sum dy n with n = (x - mean) rstd
template <class T>
void reference_batch_norm_sums(const Call& call) {
  const auto& attr = call.attr<ir::BatchNorm>();
  const int64_t groups = attr.groups, channels = call.in[0].shape.back();
  const T *dy = call.in[0].as<T>(), *x = call.in[1].as<T>(), *mean = call.in[2].as<T>(),
          *rstd = call.in[3].as<T>();
  std::vector<double> sum(static_cast<std::size_t>(groups * channels)), product(sum.size());
  for_each_value(call.in[0].shape, groups, [&](int64_t i, int64_t g, int64_t c) {
    const int64_t at = g * channels + c;
    // Behind a closed ReLU 0 is added, which a NaN survives.
    const bool open = !attr.relu || is_open(x[i], mean[at], rstd[at], call.in[4].as<T>()[c],
                                            call.in[5].as<T>()[c]);
    const double dz = open ? dy[i] : T(0);
    sum[at] += dz;
    product[at] += dz * (static_cast<double>(x[i]) - mean[at]) * rstd[at];
  });
  write<T>(sum, call.out[0]);
  write<T>(product, call.out[1]);
}

// dx = gain rstd (dy - sum_dy/N - n sum_dyn/N)
template <class T>
void reference_batch_norm_grad(const Call& call) {
  const auto& attr = call.attr<ir::BatchNorm>();
  const int64_t channels = call.in[0].shape.back();
  const T *dy = call.in[0].as<T>(), *x = call.in[1].as<T>(), *mean = call.in[2].as<T>(),
          *rstd = call.in[3].as<T>();
  const T *gain = call.in[4].as<T>(), *sum = call.in[5].as<T>(), *product = call.in[6].as<T>();
  for_each_value(call.in[0].shape, attr.groups, [&](int64_t i, int64_t g, int64_t c) {
    const int64_t at = g * channels + c;
    const double n = count_of(attr, g), normal = (static_cast<double>(x[i]) - mean[at]) * rstd[at];
    const bool open =
        !attr.relu || is_open(x[i], mean[at], rstd[at], gain[c], call.in[7].as<T>()[c]);
    call.out[0].as<T>()[i] =
        static_cast<T>(gain[c] * static_cast<double>(rstd[at]) *
                       ((open ? dy[i] : T(0)) - sum[at] / n - normal * product[at] / n));
  });
}

// dz = g (+ h) where y > 0, sum dz, and sum dz n with n = (x - mean) rstd, of one norm or two
template <class T>
void reference_relu_grad_sums(const Call& call) {
  const int64_t groups = call.attr<ir::BatchNorm>().groups, channels = call.in[0].shape.back();
  const bool two = call.in.size() >= 8;
  const T *y = call.in[0].as<T>(), *dy = call.in[1].as<T>(),
          *more = call.in.size() % 3 == 0 ? call.in.back().as<T>() : nullptr;
  std::vector<double> sum(static_cast<std::size_t>(groups * channels)), product(sum.size()),
      other(sum.size());
  // dz times the norm whose operands begin with in[x].
  const auto times = [&](double dz, std::size_t x, int64_t i, int64_t at) {
    return dz * (static_cast<double>(call.in[x].as<T>()[i]) - call.in[x + 1].as<T>()[at]) *
           call.in[x + 2].as<T>()[at];
  };
  for_each_value(call.in[0].shape, groups, [&](int64_t i, int64_t g, int64_t c) {
    const int64_t at = g * channels + c;
    const T dz = y[i] > 0 ? (more ? dy[i] + more[i] : dy[i]) : T(0);
    sum[at] += dz;
    product[at] += times(dz, 2, i, at);
    if (two) other[at] += times(dz, 5, i, at);
    if (call.out[0]) call.out[0].as<T>()[i] = dz;
  });
  write<T>(sum, call.out[1]);
  write<T>(product, call.out[2]);
  if (two) write<T>(other, call.out[3]);
}

// As torch: the variance that is kept is the unbiased one (of a single value: the biased one).
// Groups count equally.
template <class T>
void reference_running_stats(const Call& call) {
  const auto& attr = call.attr<ir::BatchNorm>();
  const int64_t channels = call.in[0].shape.back();
  for (int64_t c = 0; c < channels; ++c) {
    double mean = 0, variance = 0;
    for (int64_t g = 0; g < attr.groups; ++g) {
      const double n = count_of(attr, g), offset = call.in[2].as<T>()[g * channels + c] / n;
      mean += (offset + call.in[4].as<T>()[c]) / static_cast<double>(attr.groups);
      const double biased =
          std::max(0.0, call.in[3].as<T>()[g * channels + c] / n - offset * offset);
      variance += biased * (n > 1 ? n / (n - 1) : 1.0) / static_cast<double>(attr.groups);
    }
    if (call.out[0])
      call.out[0].as<T>()[c] =
          static_cast<T>((1 - attr.momentum) * call.in[0].as<T>()[c] + attr.momentum * mean);
    if (call.out[1])
      call.out[1].as<T>()[c] =
          static_cast<T>((1 - attr.momentum) * call.in[1].as<T>()[c] + attr.momentum * variance);
  }
}

template <class T>
void reference_batch_norm_fixed(const Call& call) {
  const double eps = call.attr<ir::BatchNorm>().eps;
  const int64_t channels = call.in[0].shape.back();
  const T *mean = call.in[1].as<T>(), *variance = call.in[2].as<T>(), *gain = call.in[3].as<T>(),
          *bias = call.in[4].as<T>();
  for (int64_t i = 0; i < call.in[0].elements(); ++i) {
    const int64_t c = i % channels;
    call.out[0].as<T>()[i] = static_cast<T>((static_cast<double>(call.in[0].as<T>()[i]) - mean[c]) /
                                                std::sqrt(variance[c] + eps) * gain[c] +
                                            bias[c]);
  }
}

template <class T>
void reference_batch_norm_scale(const Call& call) {
  const T *mean = call.in[0].as<T>(), *variance = call.in[1].as<T>(), *gain = call.in[2].as<T>(),
          *bias = call.in[3].as<T>();
  for (int64_t c = 0; c < call.in[0].elements(); ++c) {
    const double scale =
        gain[c] / std::sqrt(static_cast<double>(variance[c]) + call.attr<ir::BatchNorm>().eps);
    if (call.out[0]) call.out[0].as<T>()[c] = static_cast<T>(scale);
    if (call.out[1]) call.out[1].as<T>()[c] = static_cast<T>(bias[c] - mean[c] * scale);
  }
}

REFERENCE(moments)
REFERENCE(batch_norm)
REFERENCE(batch_norm_sums)
REFERENCE(batch_norm_grad)
REFERENCE(relu_grad_sums)
REFERENCE(running_stats)
REFERENCE(batch_norm_fixed)
REFERENCE(batch_norm_scale)

}  // namespace tessera::exec::cpu
