#include "exec/cuda/peak.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "exec/cuda/card.h"
#include "exec/cuda/handles.h"

namespace tessera::exec::cuda {
namespace {

constexpr int chains = 16, turns = 4096, threads = 256;

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

}  // namespace

double measure_peak_gflops() {
  const Card& card = own_card();
  must(::cudaSetDevice(card.index), "take hold of the card");
  const Stream stream = make_stream();
  const DeviceBytes out = take(256);
  const int blocks = card.multiprocessors * 8;
  const double seconds = shortest(stream, [&] {
    multiply_add<<<static_cast<unsigned>(blocks), threads, 0, stream>>>(
        reinterpret_cast<float*>(out.get()), 0.999f);
    launched("multiply_add");
  });
  return 2.0 * chains * turns * threads * blocks / seconds * 1e-9;
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

}  // namespace tessera::exec::cuda
