// A stand-in for exec/cuda in a build without the CUDA toolkit.
#include "base/check.h"
#include "exec/cuda/cuda.h"

namespace tessera::exec::cuda {
namespace {

constexpr const char* sentence = "this build has no CUDA executor";
[[noreturn]] void refuse() {
  throw Error(
      ErrorKind::usage, sentence, "run.device",
      "choose --device cpu, or build where the CUDA toolkit (nvcc) is: cmake --preset cuda");
}

}  // namespace

bool built() { return false; }
std::string missing() { return sentence; }
std::vector<std::pair<std::string, std::string>> facts() { return {{"cuda", sentence}}; }
DeviceInfo info(int) { refuse(); }
plan::Target target(int) { refuse(); }
std::unique_ptr<Executor> make(int, Groups, Carrier, std::string, Liberties) { refuse(); }

}  // namespace tessera::exec::cuda
