// OpenBLAS through its C interface, opened at run time: neither the build nor any other verb needs
// it. It has threads of its own.
#include <dlfcn.h>

#include "exec/cpu/peers/peers.h"

namespace tessera::exec::cpu {
namespace {

constexpr int row_major = 101, as_is = 111, turned = 112;  // of the enumerations of CBLAS

using Sgemm = void (*)(int order, int a_turned, int b_turned, int m, int n, int k, float alpha,
                       const void* a, int a_pitch, const void* b, int b_pitch, float beta, float* c,
                       int c_pitch);

template <class Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

void* open_openblas() {
  void* const found = ::dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  return found ? found : ::dlopen("libopenblas.so", RTLD_NOW | RTLD_LOCAL);
}

// "OpenBLAS 0.3.21 DYNAMIC_ARCH ..." -> "0.3.21"
std::string version_of(void* library) {
  const auto config = symbol<const char* (*)()>(library, "openblas_get_config");
  const std::string said = config ? config() : "";
  const std::size_t first = said.find(' ');
  if (first == said.npos) return "";
  return said.substr(first + 1, said.find(' ', first + 1) - first - 1);
}

}  // namespace

std::vector<PeerGemm> openblas_gemm(std::string_view dtype, int threads) {
  static void* const library = open_openblas();  // it stays: its threads may be running
  if (!library) return {};
  const char* const name = dtype == "f32" ? "cblas_sgemm" : dtype == "bf16" ? "cblas_sbgemm" : "";
  const auto gemm = symbol<Sgemm>(library, name);
  if (!gemm) return {};
  if (const auto use = symbol<void (*)(int)>(library, "openblas_set_num_threads")) use(threads);
  return {{.name = "OpenBLAS", .version = version_of(library), .run = [gemm](const PeerProduct& p) {
             const auto number = [](std::int64_t value) { return static_cast<int>(value); };
             gemm(row_major, p.a_turned ? turned : as_is, p.b_turned ? turned : as_is, number(p.m),
                  number(p.n), number(p.k), 1, p.a, number(p.a_turned ? p.m : p.k), p.b,
                  number(p.b_turned ? p.k : p.n), 0, p.c, number(p.n));
           }}};
}

std::vector<PeerGemm> peer_gemms(std::string_view dtype, int threads) {
  std::vector<PeerGemm> out = openblas_gemm(dtype, threads);
  for (PeerGemm& peer : eigen_gemm(dtype, threads)) out.push_back(std::move(peer));
  return out;
}

}  // namespace tessera::exec::cpu
