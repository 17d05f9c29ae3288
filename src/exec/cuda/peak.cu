#include "exec/cuda/peak.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "exec/cuda/card.h"
#include "exec/cuda/handles.h"
#include "exec/cuda/memory.h"
#include "exec/cuda/products/blas.h"

namespace tessera::exec::cuda {
namespace {

constexpr int chains = 16, turns = 4096, threads_of_block = 256;

// Independent chains of multiply-adds, so that neither latency nor memory holds them back.
__global__ void multiply_add(float* out, float factor) {
  float at[chains];
  for (int i = 0; i < chains; ++i) at[i] = static_cast<float>(threadIdx.x + i);
  for (int turn = 0; turn < turns; ++turn)
#pragma unroll
    for (int i = 0; i < chains; ++i) at[i] = fmaf(at[i], factor, 0.5f);
  float sum = 0;
  for (int i = 0; i < chains; ++i) sum += at[i];
  if (sum == 12345.f) out[0] = sum;  // never, but the compiler cannot know
}

// Numbers that a multiplier has work with: of zeros a card does 10% more.
__global__ void fill_random(std::uint16_t* low, double* wide, std::int64_t count) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += stride) {
    std::uint32_t bits = static_cast<std::uint32_t>(i) * 2654435761u;
    bits ^= bits >> 15;
    bits *= 2246822519u;
    bits ^= bits >> 13;
    const float value = static_cast<float>(bits) * 4.6566129e-10f - 1.f;
    // The upper half of an f32 is a bf16, cut off; as an f16 such bits are numbers up to 2, too.
    if (low) low[i] = static_cast<std::uint16_t>(__float_as_uint(value) >> 16);
    if (wide) wide[i] = static_cast<double>(value);
  }
}

// The shortest of several rounds, in seconds.
template <class Work>
double shortest(cudaStream_t stream, const Work& work) {
  const Event begin = make_event(true), end = make_event(true);
  float best = 1e30f;
  for (int round = 0; round < 8; ++round) {
    must(::cudaEventRecord(begin, stream), "measure the card");
    work();
    must(::cudaEventRecord(end, stream), "measure the card");
    must(::cudaEventSynchronize(end), "measure the card");
    float ms = 0;
    must(::cudaEventElapsedTime(&ms, begin, end), "measure the card");
    if (round > 0) best = std::min(best, ms);  // the first one loads the code
  }
  return static_cast<double>(best) * 1e-3;
}

DeviceBytes take(std::size_t bytes) {
  const std::lock_guard lock(one_at_a_time());
  void* raw = nullptr;
  must(::cudaMalloc(&raw, bytes), "take memory to measure the card");
  return DeviceBytes(static_cast<std::byte*>(raw));
}

// A product of square matrices, both factors with their depth together; smaller ones where a run
// has left little memory.
double product_gflops(ir::DType dtype, std::int64_t size) {
  while (size > 1024 && 4 * size * size * ir::size_of(dtype) > room_on_card().free) size /= 2;
  const Stream stream = make_stream();
  const std::unique_ptr<Blas> blas = Blas::open();
  const std::int64_t count = size * size, bytes = count * ir::size_of(dtype),
                     scratch = blas_workspace(limits());
  const DeviceBytes left = take(static_cast<std::size_t>(bytes)),
                    right = take(static_cast<std::size_t>(bytes)),
                    result = take(static_cast<std::size_t>(bytes)),
                    workspace = take(static_cast<std::size_t>(scratch));
  const bool wide = dtype == ir::DType::f64;
  for (std::byte* at : {left.get(), right.get()}) {
    fill_random<<<1024, threads_of_block, 0, stream>>>(
        wide ? nullptr : reinterpret_cast<std::uint16_t*>(at),
        wide ? reinterpret_cast<double*>(at) : nullptr, count);
    launched("fill_random");
  }
  Product product{.factors = dtype, .result = dtype, .rows = size, .cols = size, .depth = size};
  product.left = {.outer = size, .depth = 1};
  product.right = {.outer = size, .depth = 1};
  product.d = {.col = size};
  product.workspace = scratch;
  product.align_left = product.align_right = product.align_result = 256;
  const std::optional<BlasPlan> plan = blas->plan(product);
  if (!plan) return 0;
  const double seconds = shortest(stream, [&] {
    blas->run(
        *plan,
        {.left = left.get(), .right = right.get(), .d = result.get(), .workspace = workspace.get()},
        stream);
  });
  const auto n = static_cast<double>(size);
  return 2 * n * n * n / seconds * 1e-9;
}

}  // namespace

// fp8 is judged by what bf16 could do: most of a program around its products is bf16.
std::string how_peak_is_measured(std::string_view dtype) {
  if (dtype == "fp8") return how_peak_is_measured("bf16");
  if (dtype == "bf16" || dtype == "f16" || dtype == "f64")
    return "measured: the product of two random matrices of " + std::string(dtype) +
           " by cuBLASLt, the shortest of 7; of one rank";
  return "measured: independent f32 multiply-adds in registers on all multiprocessors, the "
         "shortest of 7; of one rank";
}

namespace {

double peak_now(const Card& card, std::string_view dtype) {
  if (dtype == "bf16" || dtype == "f16")
    if (const double found = product_gflops(ir::parse_dtype(dtype), 8192); found > 0) return found;
  if (dtype == "f64")
    if (const double found = product_gflops(ir::DType::f64, 4096); found > 0) return found;
  const Stream stream = make_stream();
  const DeviceBytes out = take(256);
  const int blocks = card.multiprocessors * 8;
  const double seconds = shortest(stream, [&] {
    multiply_add<<<static_cast<unsigned>(blocks), threads_of_block, 0, stream>>>(
        reinterpret_cast<float*>(out.get()), 0.999f);
    launched("multiply_add");
  });
  return 2.0 * chains * turns * threads_of_block * blocks / seconds * 1e-9;
}

}  // namespace

double measure_peak_gflops(std::string_view dtype) {
  if (dtype == "fp8") return measure_peak_gflops("bf16");
  static std::mutex one;
  static std::map<std::pair<int, std::string>, double> known;
  const std::lock_guard lock(one);
  const Card& card = own_card();
  must(::cudaSetDevice(card.index), "take hold of the card");
  double& peak = known[{card.index, std::string(dtype)}];
  if (peak == 0) peak = peak_now(card, dtype);
  return peak;
}

double measure_copy_gbytes() {
  must(::cudaSetDevice(own_card().index), "take hold of the card");
  constexpr std::size_t bytes = std::size_t{256} << 20;
  const Stream stream = make_stream();
  const DeviceBytes from = take(bytes), to = take(bytes);
  const double seconds = shortest(stream, [&] {
    copy(to, from, static_cast<std::int64_t>(bytes), cudaMemcpyDeviceToDevice, stream,
         "measure the card");
  });
  return 2.0 * static_cast<double>(bytes) / seconds * 1e-9;
}

// The second stream begins behind the first one's start and is over before its end.
LinkRates measure_link_gbytes() {
  must(::cudaSetDevice(own_card().index), "take hold of the card");
  constexpr std::int64_t bytes = std::int64_t{64} << 20;
  constexpr int copies = 8;
  const Stream stream = make_stream(), other = make_stream();
  const Event begins = make_event(), ends = make_event();
  const PinnedBytes host = pin(2 * bytes);
  const DeviceBytes card = take(static_cast<std::size_t>(2 * bytes));
  const auto up = [&](cudaStream_t on) {
    for (int i = 0; i < copies; ++i)
      copy(card.get(), host.get(), bytes, cudaMemcpyHostToDevice, on, "measure the link");
  };
  const auto down = [&](cudaStream_t on) {
    for (int i = 0; i < copies; ++i)
      copy(host.get() + bytes, card.get() + bytes, bytes, cudaMemcpyDeviceToHost, on,
           "measure the link");
  };
  const auto rate = [&](double seconds) {
    return static_cast<double>(bytes) * copies / seconds * 1e-9;
  };
  LinkRates out;
  out.up = rate(shortest(stream, [&] { up(stream); }));
  out.down = rate(shortest(stream, [&] { down(stream); }));
  out.both = rate(shortest(stream, [&] {
    must(::cudaEventRecord(begins, stream), "measure the link");
    must(::cudaStreamWaitEvent(other, begins, 0), "measure the link");
    up(stream);
    down(other);
    must(::cudaEventRecord(ends, other), "measure the link");
    must(::cudaStreamWaitEvent(stream, ends, 0), "measure the link");
  }));
  return out;
}

}  // namespace tessera::exec::cuda
