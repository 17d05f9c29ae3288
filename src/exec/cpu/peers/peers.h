// Products of other libraries, which `bench gemm` shows beside ours; nothing else calls them.
// Eigen is compiled in where its headers were found (else no_eigen.cpp takes its place), OpenBLAS
// is opened when it is asked for. Convention: matrices are row-major and without gaps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::exec::cpu {

// C = A B: A is m x k, or lies as k x m; B is k x n, or lies as n x k; C is m x n in f32.
struct PeerProduct {
  std::int64_t m = 0, n = 0, k = 0;
  const void *a = nullptr, *b = nullptr;  // f32 or bf16, as the peer was asked for
  bool a_turned = false, b_turned = false;
  float* c = nullptr;
};

struct PeerGemm {
  std::string name, version;
  std::function<void(const PeerProduct&)> run;
};

// Those that this build and this machine have for factors of a type (f32, bf16), each with so many
// threads.
std::vector<PeerGemm> peer_gemms(std::string_view dtype, int threads);

// Functions for the other files of this folder; empty: there is none.
std::vector<PeerGemm> eigen_gemm(std::string_view dtype, int threads);
std::vector<PeerGemm> openblas_gemm(std::string_view dtype, int threads);

}  // namespace tessera::exec::cpu
