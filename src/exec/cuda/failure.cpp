#include "exec/cuda/failure.h"

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "base/check.h"

namespace tessera::exec::cuda {
namespace {

struct Simulated {
  std::mutex mutex;
  std::string what;
  int left = 0;
  cudaError_t status = cudaSuccess;
};
Simulated& simulated() {
  static Simulated one;
  return one;
}
std::atomic<bool> simulates = false;

void from_environment() {
  const char* given = std::getenv("TESSERA_CUDA_FAIL");
  if (!given) return;
  const std::string text = given;
  const std::size_t last = text.rfind(':');
  const std::size_t first = last == text.npos || last == 0 ? text.npos : text.rfind(':', last - 1);
  CHECK(
      first != text.npos,
      "TESSERA_CUDA_FAIL: expected WORDS:NTH:STATUS, for example 'launch a graph:3:719', found '" +
          text + "'");
  simulate_failure(text.substr(0, first), std::atoi(text.c_str() + first + 1),
                   static_cast<cudaError_t>(std::atoi(text.c_str() + last + 1)));
}

std::string version(int number) {
  return number == 0
             ? "an unknown version of CUDA"
             : "CUDA " + std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

constexpr const char* go_on_without = "; --device cpu needs no card";

// Fails with what is wrong before anything ran; returns where the status says something else.
void fail_before(cudaError_t status, const std::string& where) {
  int driver = 0, runtime = 0;
  ::cudaDriverGetVersion(&driver);
  ::cudaRuntimeGetVersion(&runtime);
  if (status == cudaErrorInsufficientDriver && driver == 0)
    throw Error(ErrorKind::device,
                "expected the driver of an NVIDIA card (libcuda.so.1), found none on this machine",
                where, std::string("install NVIDIA's driver") + go_on_without);
  if (status == cudaErrorInsufficientDriver || status == cudaErrorSystemDriverMismatch)
    throw Error(
        ErrorKind::device,
        "expected a driver for " + version(runtime) + " or newer, found one for " + version(driver),
        where,
        "install a newer driver, or build with the toolkit that fits this one" +
            std::string(go_on_without));
  if (status == cudaErrorNoDevice || status == cudaErrorInvalidDevice)
    throw Error(ErrorKind::device, "expected an NVIDIA card, found none that this process may use",
                where,
                "look at nvidia-smi and at CUDA_VISIBLE_DEVICES" + std::string(go_on_without));
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidKernelImage ||
      status == cudaErrorUnsupportedPtxVersion)
    throw Error(ErrorKind::device, "this build has no code for the card", where,
                "build for it: -DCMAKE_CUDA_ARCHITECTURES=native, or the preset cuda-all" +
                    std::string(go_on_without));
}

bool lost(cudaError_t status) {
  switch (status) {
    case cudaErrorECCUncorrectable:
    case cudaErrorDevicesUnavailable:
    case cudaErrorHardwareStackError:
    case cudaErrorContextIsDestroyed:
    case cudaErrorUnknown:
    case cudaErrorNvlinkUncorrectable:
      return true;
    default:
      return false;
  }
}

}  // namespace

cudaError_t simulated_status(cudaError_t status, const char* what) {
  static const bool asked = (from_environment(), true);
  (void)asked;
  if (!simulates.load(std::memory_order_relaxed)) return status;
  Simulated& s = simulated();
  const std::lock_guard lock(s.mutex);
  if (s.what.empty() || std::string_view(what).find(s.what) == std::string_view::npos)
    return status;
  return --s.left == 0 ? s.status : status;
}

void simulate_failure(std::string what, int nth, cudaError_t status) {
  Simulated& s = simulated();
  const std::lock_guard lock(s.mutex);
  s.what = std::move(what);
  s.left = nth;
  s.status = status;
  simulates = !s.what.empty();
}

void fail(cudaError_t status, const std::string& what) {
  const std::string where = "cuda", said = std::string(::cudaGetErrorName(status)) + ": " +
                                           ::cudaGetErrorString(status);
  (void)::cudaGetLastError();  // one that may be forgotten is
  fail_before(status, where);
  if (status == cudaErrorMemoryAllocation)
    throw Error(ErrorKind::memory, "the card has no memory left to " + what + " (" + said + ")",
                where,
                "use a smaller micro-batch (--accumulate) or --set parallel.recompute=full; other "
                "programs may hold memory of this card (nvidia-smi)");
  if (lost(status))
    throw Error(ErrorKind::device, "the card was lost: could not " + what + " (" + said + ")",
                where,
                "look at the kernel's log (dmesg | grep NVRM) and nvidia-smi, then start again: a "
                "training goes on from its newest checkpoint");
  throw Error(ErrorKind::device,
              "the card refused or failed: could not " + what + " (" + said + ")", where,
              "nothing that this process computed on the card since its last checkpoint can be "
              "trusted; start again, and report it if it comes back");
}

void must(cudaError_t status, const char* what) {
  status = simulated_status(status, what);
  if (status != cudaSuccess) fail(status, what);
}

bool refused(cudaError_t status, const char* what) {
  status = simulated_status(status, what);
  if (status == cudaSuccess) return false;
  const bool no = status == cudaErrorMemoryAllocation || status == cudaErrorNotSupported ||
                  status == cudaErrorHostMemoryAlreadyRegistered ||
                  status == cudaErrorInvalidValue || status == cudaErrorOperatingSystem;
  if (!no) fail(status, what);
  (void)::cudaGetLastError();
  return true;
}

void launched(const char* kernel) {
  const cudaError_t status = simulated_status(::cudaGetLastError(), kernel);
  if (status != cudaSuccess) fail(status, "launch the kernel " + std::string(kernel));
}

}  // namespace tessera::exec::cuda
