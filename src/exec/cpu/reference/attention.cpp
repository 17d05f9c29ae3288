// Softmax attention and its gradient by their definitions, one head of one sample at a time.
// Shapes: q, o [b,t,h,d]; k, v [b,s,h,d]; lse [b,h,t]; bias [h,t,s]; mask [w,t,s]. b stands for all
// leading dims, of which the last counts the windows of a mask: b takes mask b % w. In windows of
// an image q, k, v and o are [b,i,j,h,d], and b counts the windows of all images.
#include <algorithm>
#include <cmath>
#include <limits>

#include "exec/cpu/reference/instantiate.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

template <class T>
struct Heads {
  int64_t b, t, s, h, d;
  double scale;
  const T *q, *k, *bias = nullptr, *mask = nullptr;
  int64_t windows = 1;
  ir::Shape image, window, shift;  // empty: tokens lie behind each other

  Heads(const Call& call, std::size_t extras) {
    const auto& attr = call.attr<ir::Attention>();
    const Tensor &tq = call.in[0], &tk = call.in[1];
    const std::size_t lead = tq.shape.size() - 3;
    b = 1;
    t = tq.shape[lead];
    h = tq.shape[lead + 1];
    d = tq.shape[lead + 2];
    s = tk.shape[lead];
    for (std::size_t i = 0; i < lead; ++i) b *= tq.shape[i];
    if (!attr.window.empty()) {
      image = {tq.shape[lead - 1], tq.shape[lead]};
      window = attr.window;
      shift = attr.shift;
      t = s = window[0] * window[1];
      b = tq.elements() / std::max<int64_t>(1, t * h * d);
    }
    scale = attr.scale;
    q = tq.as<T>();
    k = tk.as<T>();
    if (attr.bias) bias = call.in[extras++].as<T>();
    if (attr.mask) {
      mask = call.in[extras].as<T>();
      windows = call.in[extras].shape[0];
    }
  }
  // The place of a token among those of all samples, of which each has `count`.
  int64_t token(int64_t ib, int64_t it, int64_t count) const {
    if (window.empty()) return ib * count + it;
    const int64_t columns = image[1] / window[1], n = image[0] / window[0] * columns;
    const int64_t y = ib % n / columns * window[0] + it / window[1] + shift[0],
                  x = ib % n % columns * window[1] + it % window[1] + shift[1];
    return (ib / n * image[0] + y % image[0]) * image[1] + x % image[1];
  }
  int64_t at_t(int64_t ib, int64_t it, int64_t ih) const {
    return (token(ib, it, t) * h + ih) * d;
  }  // in q and o
  int64_t at_s(int64_t ib, int64_t is, int64_t ih) const {
    return (token(ib, is, s) * h + ih) * d;
  }  // in k and v

  // scale q.k + bias + mask
  double score(int64_t ib, int64_t it, int64_t is, int64_t ih) const {
    const T *qi = q + at_t(ib, it, ih), *kj = k + at_s(ib, is, ih);
    double sum = 0;
    for (int64_t c = 0; c < d; ++c) sum += static_cast<double>(qi[c]) * kj[c];
    sum *= scale;
    if (bias) sum += bias[(ih * t + it) * s + is];
    if (mask) sum += mask[(ib % windows * t + it) * s + is];
    return sum;
  }
};

}  // namespace

// P = softmax(score) over s, o = P v, lse = log sum_s exp(score)
template <class T>
void reference_attention(const Call& call) {
  const Heads<T> at(call, 3);
  const T* v = call.in[2].as<T>();
  T* o = call.out[0].as<T>();
  T* lse = call.out.size() > 1 ? call.out[1].as<T>() : nullptr;
  call.pool.parallel_for(at.b * at.h, [&](int64_t task, int) {
    const int64_t ib = task / at.h, ih = task % at.h;
    std::vector<double> p(static_cast<std::size_t>(at.s)), row(static_cast<std::size_t>(at.d));
    for (int64_t it = 0; it < at.t; ++it) {
      double top = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t is = 0; is < at.s; ++is) top = std::max(top, p[is] = at.score(ib, it, is, ih));
      for (double& e : p) sum += e = std::exp(e - top);
      std::fill(row.begin(), row.end(), 0.0);
      for (int64_t is = 0; is < at.s; ++is)
        for (int64_t c = 0; c < at.d; ++c) row[c] += p[is] / sum * v[at.at_s(ib, is, ih) + c];
      if (o)
        for (int64_t c = 0; c < at.d; ++c) o[at.at_t(ib, it, ih) + c] = static_cast<T>(row[c]);
      if (lse) lse[(ib * at.h + ih) * at.t + it] = static_cast<T>(top + std::log(sum));
    }
  });
}

// The gradients of q, k and v: three tensors, or one in which those of a token follow each other.
template <class T>
struct ReferenceGradients {
  T *dq = nullptr, *dk = nullptr, *dv = nullptr, *dbias = nullptr;
  int64_t token;  // how far apart tokens lie

  ReferenceGradients(const Call& call, const Heads<T>& at) {
    const auto& attr = call.attr<ir::Attention>();
    const std::size_t first = attr.packed ? 1 : 3;
    token = at.h * at.d * (attr.packed ? 3 : 1);
    dq = call.out[0].as<T>();
    if (!attr.packed) {
      dk = call.out[1].as<T>();
      dv = call.out[2].as<T>();
    } else if (dq) {
      dk = dq + at.h * at.d;
      dv = dk + at.h * at.d;
    }
    if (call.out.size() > first) dbias = call.out[first].as<T>();
  }
};

// P = exp(score - lse), D = sum_d do o, dS = P (do.v - D);  dq = scale dS k, dk = scale dS^T q, dv
// = P^T do, dbias = sum_b dS (the softmax Jacobian diag(P) - P P^T applied to dP = do v^T: P.dP
// summed over a row is D)
template <class T>
void reference_attention_grad(const Call& call) {
  const Heads<T> at(call, 6);
  const T *v = call.in[2].as<T>(), *o = call.in[3].as<T>(), *lse = call.in[4].as<T>(),
          *go = call.in[5].as<T>();
  const ReferenceGradients<T> to(call, at);

  const auto head = [&](int64_t ib, int64_t ih, double* bias_sum) {
    std::vector<double> sq(static_cast<std::size_t>(at.d)),
        sk(static_cast<std::size_t>(at.s * at.d)), sv(sk.size());
    for (int64_t it = 0; it < at.t; ++it) {
      const int64_t row = at.at_t(ib, it, ih);
      double total = 0;  // D
      for (int64_t c = 0; c < at.d; ++c) total += static_cast<double>(go[row + c]) * o[row + c];
      std::fill(sq.begin(), sq.end(), 0.0);
      for (int64_t is = 0; is < at.s; ++is) {
        const int64_t key = at.at_s(ib, is, ih);
        const double p = std::exp(at.score(ib, it, is, ih) - lse[(ib * at.h + ih) * at.t + it]);
        double dp = 0;  // do.v
        for (int64_t c = 0; c < at.d; ++c) dp += static_cast<double>(go[row + c]) * v[key + c];
        const double ds = p * (dp - total);
        for (int64_t c = 0; c < at.d; ++c) {
          sq[c] += at.scale * ds * at.k[key + c];
          sk[is * at.d + c] += at.scale * ds * at.q[row + c];
          sv[is * at.d + c] += p * go[row + c];
        }
        if (bias_sum) bias_sum[it * at.s + is] += ds;
      }
      if (to.dq)
        for (int64_t c = 0; c < at.d; ++c)
          to.dq[at.token(ib, it, at.t) * to.token + ih * at.d + c] = static_cast<T>(sq[c]);
    }
    for (int64_t is = 0; is < at.s; ++is)
      for (int64_t c = 0; c < at.d; ++c) {
        const int64_t place = at.token(ib, is, at.s) * to.token + ih * at.d + c;
        if (to.dk) to.dk[place] = static_cast<T>(sk[is * at.d + c]);
        if (to.dv) to.dv[place] = static_cast<T>(sv[is * at.d + c]);
      }
  };

  if (!to.dbias) {
    call.pool.parallel_for(at.b * at.h,
                           [&](int64_t task, int) { head(task / at.h, task % at.h, nullptr); });
    return;
  }
  // The bias is shared by the samples: one task adds its head over b in order.
  call.pool.parallel_for(at.h, [&](int64_t ih, int) {
    std::vector<double> bias_sum(static_cast<std::size_t>(at.t * at.s));
    for (int64_t ib = 0; ib < at.b; ++ib) head(ib, ih, bias_sum.data());
    for (int64_t i = 0; i < at.t * at.s; ++i)
      to.dbias[ih * at.t * at.s + i] = static_cast<T>(bias_sum[i]);
  });
}

REFERENCE(attention)
REFERENCE(attention_grad)

}  // namespace tessera::exec::cpu
