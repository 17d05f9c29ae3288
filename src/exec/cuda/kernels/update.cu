// Optimizer updates and the scalars around them. Each update is one pass: w, state and gradient are
// read once and written once (28 bytes an element for AdamW in f32, which is the floor). What
// changes between steps is read from device memory; thread 0 of every block makes the factors of it
// in double, so blocks stay on their multiprocessor and walk. Convention: results may be the
// operands' own storage; with ok == 0 they equal the operands bit for bit.
#include <limits>

#include "exec/common/loss_scale.h"
#include "exec/cuda/kernels/index.cuh"

namespace tessera::exec::cuda {
namespace {

constexpr int update_threads = 256;

// The optional scalars that close the operand list, null where they are not given.
template <class T>
struct Tail {
  const T *factor = nullptr, *ok = nullptr;

  Tail(const Call& call, std::size_t at, bool has_factor, bool has_ok) {
    if (has_factor) factor = call.in[at++].as<T>();
    if (has_ok) ok = call.in[at].as<T>();
  }
  __device__ T scale() const { return factor ? *factor : T(1); }
  __device__ bool applies() const { return !ok || *ok != T(0); }
};

template <class T>
struct SgdArrays {
  const T *w, *momentum, *grad, *lr;
  T *w_out, *momentum_out;
  std::int64_t n;
  double decay, mu;
  bool nesterov;
};
template <class T, int width>
__global__ void __launch_bounds__(update_threads)
    sgd_step(const SgdArrays<T> a, const Tail<T> tail) {
  using P = Pack<T, width>;
  const bool applies = tail.applies();
  const T factor = tail.scale(), lr = *a.lr, mu = static_cast<T>(a.mu),
          decay = static_cast<T>(a.decay);
  for (std::int64_t i = grid_thread() * width; i < a.n; i += grid_threads() * width) {
    P w = *reinterpret_cast<const P*>(a.w + i), m{}, g;
    if (a.momentum) m = *reinterpret_cast<const P*>(a.momentum + i);
    if (applies) {
      g = *reinterpret_cast<const P*>(a.grad + i);
#pragma unroll
      for (int k = 0; k < width; ++k) {
        const T gradient = g.at[k] * factor + decay * w.at[k];
        m.at[k] = mu * m.at[k] + gradient;
        w.at[k] -= lr * (a.nesterov ? gradient + mu * m.at[k] : m.at[k]);
      }
    }
    if (a.w_out) *reinterpret_cast<P*>(a.w_out + i) = w;
    if (a.momentum_out) *reinterpret_cast<P*>(a.momentum_out + i) = m;
  }
}

template <class T>
struct AdamArrays {
  const T *w, *m, *v, *grad, *lr;
  const std::int64_t* step;
  T *w_out, *m_out, *v_out;
  std::int64_t n;
  double beta1, beta2, eps, decay;
};
// m' = b1 m + (1 - b1) g;  v' = b2 v + (1 - b2) g^2;  ratio = m' / (sqrt(v') root + eps);
// w' = w keep - step ratio, with step = lr / (1 - b1^t) and root = 1 / sqrt(1 - b2^t)
template <class T, int width>
__global__ void __launch_bounds__(update_threads)
    adamw_step(const AdamArrays<T> a, const Tail<T> tail) {
  using P = Pack<T, width>;
  __shared__ T shared_step, shared_root;
  const double lr = static_cast<double>(*a.lr), t = static_cast<double>(*a.step);
  if (threadIdx.x == 0) shared_step = static_cast<T>(lr / (1.0 - pow(a.beta1, t)));
  if (threadIdx.x == 32) shared_root = static_cast<T>(1.0 / sqrt(1.0 - pow(a.beta2, t)));
  __syncthreads();
  const bool applies = tail.applies();
  const T factor = tail.scale(), step = shared_step, root = shared_root,
          keep = static_cast<T>(1.0 - lr * a.decay), eps = static_cast<T>(a.eps),
          beta1 = static_cast<T>(a.beta1), rest1 = static_cast<T>(1.0 - a.beta1),
          beta2 = static_cast<T>(a.beta2), rest2 = static_cast<T>(1.0 - a.beta2);
  for (std::int64_t i = grid_thread() * width; i < a.n; i += grid_threads() * width) {
    P w = *reinterpret_cast<const P*>(a.w + i), m = *reinterpret_cast<const P*>(a.m + i),
      v = *reinterpret_cast<const P*>(a.v + i);
    if (applies) {
      const P grad = *reinterpret_cast<const P*>(a.grad + i);
#pragma unroll
      for (int k = 0; k < width; ++k) {
        const T g = grad.at[k] * factor;
        m.at[k] = beta1 * m.at[k] + rest1 * g;
        v.at[k] = beta2 * v.at[k] + rest2 * g * g;
        w.at[k] = w.at[k] * keep - step * (m.at[k] / (sqrt(v.at[k]) * root + eps));
      }
    }
    if (a.w_out) *reinterpret_cast<P*>(a.w_out + i) = w;
    if (a.m_out) *reinterpret_cast<P*>(a.m_out + i) = m;
    if (a.v_out) *reinterpret_cast<P*>(a.v_out + i) = v;
  }
}

template <class T, int width>
__global__ void __launch_bounds__(update_threads)
    average(const T* a, const T* w, T* y, std::int64_t n, T decay, T rest) {
  using P = Pack<T, width>;
  for (std::int64_t i = grid_thread() * width; i < n; i += grid_threads() * width) {
    P old = *reinterpret_cast<const P*>(a + i);
    const P now = *reinterpret_cast<const P*>(w + i);
#pragma unroll
    for (int k = 0; k < width; ++k) old.at[k] = decay * old.at[k] + rest * now.at[k];
    *reinterpret_cast<P*>(y + i) = old;
  }
}

// Eight blocks a multiprocessor stay and walk.
unsigned update_grid(const Call& call, std::int64_t packs) {
  return grid_for(packs, update_threads, std::int64_t{8} * call.context.limits.multiprocessors);
}
template <class T>
T* result_of(const Call& call, std::size_t i) {
  return i < call.out.size() ? call.out[i].as<T>() : nullptr;
}

template <class T>
__global__ void clip_norm(const T* sumsq, T* norm, T* factor, double max) {
  const double length = sqrt(static_cast<double>(*sumsq));
  if (norm) *norm = static_cast<T>(length);
  // As std::min(1.0, .): a NaN does not clip.
  const double wanted = max / (length + 1e-6);
  if (factor) *factor = static_cast<T>(max > 0 && wanted < 1.0 ? wanted : 1.0);
}

constexpr int scalars_at_once = 256;
template <class T>
struct Scalars {
  const T* at[scalars_at_once];
};
// y = all are finite (and, after the first launch, y was 1).
template <class T>
__global__ void all_finite(const __grid_constant__ Scalars<T> scalars, int count, bool first,
                           T* y) {
  const int i = static_cast<int>(threadIdx.x);
  const bool fine = i >= count || isfinite(*scalars.at[i]);
  const bool before = first || *y != T(0);
  const int all = __syncthreads_and(fine && before);
  if (i == 0) *y = all ? T(1) : T(0);
}

template <class T>
__global__ void advance_step(const std::int64_t* step, const T* ok, std::int64_t* y) {
  *y = *step + (!ok || *ok != T(0) ? 1 : 0);
}
template <class T>
__global__ void look_up(const T* table, const std::int64_t* index, const std::int64_t* first, T* y,
                        std::int64_t n) {
  const std::int64_t at = *index - *first;
  *y = table[at < 0 ? 0 : at < n ? at : n - 1];
}

template <class T>
__global__ void scale_now(const ir::LossScale rule, const T* stored, T* scale, T* inverse) {
  const double now = scale_in_use(rule, static_cast<double>(*stored));
  if (scale) *scale = static_cast<T>(now);
  if (inverse) *inverse = static_cast<T>(1.0 / now);
}
template <class T>
__global__ void scale_next(const ir::LossScale rule, const T* stored, const std::int64_t* good,
                           const std::int64_t* overflows, const T* ok, const T* sound, T* scale,
                           std::int64_t* new_good, std::int64_t* new_overflows, T* answered) {
  const ScaleState next = next_scale(rule, static_cast<double>(*stored), *good, *overflows,
                                     *ok != T(0), *sound != T(0));
  if (scale) *scale = static_cast<T>(next.scale);
  if (new_good) *new_good = next.good;
  if (new_overflows) *new_overflows = next.overflows;
  if (answered) *answered = next.answered ? T(1) : T(0);
}

}  // namespace

void run_sgd(const Call& call) {
  const auto& attr = call.attr<ir::Sgd>();
  if (call.in[0].elements() == 0) return;
  with_wide(call.in[0].dtype, [&]<class T>(T) {
    const Tail<T> tail(call, 4, attr.factor, attr.ok);
    const SgdArrays<T> a{call.in[0].as<T>(),    call.in[1].as<T>(),    call.in[2].as<T>(),
                         call.in[3].as<T>(),    result_of<T>(call, 0), result_of<T>(call, 1),
                         call.in[0].elements(), attr.weight_decay,     attr.momentum,
                         attr.nesterov};
    constexpr int width = per_16_bytes<T>;
    const bool packs = in_16_bytes<T>(a.n, {a.w, a.momentum, a.grad, a.w_out, a.momentum_out});
    const auto kernel = packs ? sgd_step<T, width> : sgd_step<T, 1>;
    kernel<<<update_grid(call, a.n / (packs ? width : 1)), update_threads, 0, call.stream>>>(a,
                                                                                             tail);
  });
  launched("sgd_step");
}

void run_adamw(const Call& call) {
  const auto& attr = call.attr<ir::AdamW>();
  if (call.in[0].elements() == 0) return;
  with_wide(call.in[0].dtype, [&]<class T>(T) {
    const Tail<T> tail(call, 6, attr.factor, attr.ok);
    const AdamArrays<T> a{call.in[0].as<T>(),
                          call.in[1].as<T>(),
                          call.in[2].as<T>(),
                          call.in[3].as<T>(),
                          call.in[4].as<T>(),
                          call.in[5].as<std::int64_t>(),
                          result_of<T>(call, 0),
                          result_of<T>(call, 1),
                          result_of<T>(call, 2),
                          call.in[0].elements(),
                          attr.beta1,
                          attr.beta2,
                          attr.eps,
                          attr.weight_decay};
    constexpr int width = per_16_bytes<T>;
    const bool packs = in_16_bytes<T>(a.n, {a.w, a.m, a.v, a.grad, a.w_out, a.m_out, a.v_out});
    const auto kernel = packs ? adamw_step<T, width> : adamw_step<T, 1>;
    kernel<<<update_grid(call, a.n / (packs ? width : 1)), update_threads, 0, call.stream>>>(a,
                                                                                             tail);
  });
  launched("adamw_step");
}

void run_ema(const Call& call) {
  const double decay = call.attr<ir::Ema>().decay;
  const std::int64_t n = call.out[0].elements();
  if (n == 0) return;
  with_wide(call.out[0].dtype, [&]<class T>(T) {
    const T *a = call.in[0].as<T>(), *w = call.in[1].as<T>();
    T* y = call.out[0].as<T>();
    constexpr int width = per_16_bytes<T>;
    const bool packs = in_16_bytes<T>(n, {a, w, y});
    const auto kernel = packs ? average<T, width> : average<T, 1>;
    kernel<<<grid_for(n / (packs ? width : 1), update_threads), update_threads, 0, call.stream>>>(
        a, w, y, n, static_cast<T>(decay), static_cast<T>(1.0 - decay));
  });
  launched("average");
}

void run_clip(const Call& call) {
  with_wide(call.in[0].dtype, [&]<class T>(T) {
    clip_norm<<<1, 1, 0, call.stream>>>(call.in[0].as<T>(), result_of<T>(call, 0),
                                        result_of<T>(call, 1), call.attr<ir::Clip>().max);
  });
  launched("clip_norm");
}

void run_finite(const Call& call) {
  with_wide(call.out[0].dtype, [&]<class T>(T) {
    for (std::size_t begin = 0; begin < call.in.size(); begin += scalars_at_once) {
      const std::size_t count = std::min<std::size_t>(scalars_at_once, call.in.size() - begin);
      Scalars<T> scalars{};
      for (std::size_t i = 0; i < count; ++i) {
        CHECK(call.in[begin + i].dtype == call.out[0].dtype,
              "the operands of finite have one element type");
        scalars.at[i] = call.in[begin + i].as<T>();
      }
      all_finite<<<1, scalars_at_once, 0, call.stream>>>(scalars, static_cast<int>(count),
                                                         begin == 0, call.out[0].as<T>());
      launched("all_finite");
    }
  });
}

void run_advance(const Call& call) {
  const bool flagged = call.in.size() > 1;
  with_wide(flagged ? call.in[1].dtype : ir::DType::f32, [&]<class T>(T) {
    advance_step<T><<<1, 1, 0, call.stream>>>(call.in[0].as<std::int64_t>(),
                                              flagged ? call.in[1].as<T>() : nullptr,
                                              call.out[0].as<std::int64_t>());
  });
  launched("advance_step");
}

void run_lookup(const Call& call) {
  with_wide(call.in[0].dtype, [&]<class T>(T) {
    look_up<<<1, 1, 0, call.stream>>>(call.in[0].as<T>(), call.in[1].as<std::int64_t>(),
                                      call.in[2].as<std::int64_t>(), call.out[0].as<T>(),
                                      call.in[0].elements());
  });
  launched("look_up");
}

void run_loss_scale(const Call& call) {
  with_wide(call.in[0].dtype, [&]<class T>(T) {
    scale_now<<<1, 1, 0, call.stream>>>(call.attr<ir::LossScale>(), call.in[0].as<T>(),
                                        result_of<T>(call, 0), result_of<T>(call, 1));
  });
  launched("scale_now");
}

void run_rescale(const Call& call) {
  with_wide(call.in[0].dtype, [&]<class T>(T) {
    scale_next<<<1, 1, 0, call.stream>>>(
        call.attr<ir::LossScale>(), call.in[0].as<T>(), call.in[1].as<std::int64_t>(),
        call.in[2].as<std::int64_t>(), call.in[3].as<T>(), call.in[4].as<T>(),
        result_of<T>(call, 0), result_of<std::int64_t>(call, 1), result_of<std::int64_t>(call, 2),
        result_of<T>(call, 3));
  });
  launched("scale_next");
}

}  // namespace tessera::exec::cuda
