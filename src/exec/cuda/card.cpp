#include "exec/cuda/card.h"

#include <algorithm>
#include <cstdlib>

#include "base/check.h"
#include "comm/comm.h"
#include "exec/cuda/cuda.h"
#include "exec/cuda/failure.h"
#include "exec/cuda/library.h"
#include "exec/cuda/nccl/nccl.h"

namespace tessera::exec::cuda {
namespace {

constexpr int oldest = 75;  // compute capability that kernels are written for

int attribute(cudaDeviceAttr what, int card) {
  int value = 0;
  return ::cudaDeviceGetAttribute(&value, what, card) == cudaSuccess ? value : 0;
}

std::string hex(const cudaUUID_t& uuid) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (const char byte : uuid.bytes) {
    out += digits[static_cast<unsigned char>(byte) >> 4];
    out += digits[static_cast<unsigned char>(byte) & 15];
  }
  return out;
}

Machinery look() {
  Machinery out;
  (void)::cudaDriverGetVersion(&out.driver);
  (void)::cudaRuntimeGetVersion(&out.runtime);
  int count = 0;
  out.status = simulated_status(::cudaGetDeviceCount(&count), "look for a card");
  (void)::cudaGetLastError();
  if (out.status != cudaSuccess) count = 0;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp said{};
    if (::cudaGetDeviceProperties(&said, i) != cudaSuccess) continue;
    out.cards.push_back({.index = i,
                         .name = said.name,
                         .arch = 10 * said.major + said.minor,
                         .multiprocessors = said.multiProcessorCount,
                         .shared_per_block = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, i),
                         .memory = static_cast<std::int64_t>(said.totalGlobalMem),
                         .identity = hex(said.uuid)});
  }
  return out;
}

const char* look_up(const char* name) { return std::getenv(name); }

// Whether what is written to one card of this machine reaches another directly, pair by pair.
std::string peer_access(const std::vector<Card>& cards) {
  if (cards.size() < 2) return "one card";
  std::string without;
  for (const Card& a : cards)
    for (const Card& b : cards) {
      int can = 0;
      if (a.index == b.index) continue;
      (void)::cudaDeviceCanAccessPeer(&can, a.index, b.index);
      if (can == 0)
        without += (without.empty() ? "" : ", ") + std::to_string(a.index) + " to " +
                   std::to_string(b.index);
    }
  return without.empty() ? "between all cards" : "between all cards but " + without;
}

std::string version(int number) {
  return number == 0 ? "none"
                     : std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string capability(int arch) {
  return std::to_string(arch / 10) + "." + std::to_string(arch % 10);
}

// The version of a library as it reports it, or why there is none.
std::string library_version(std::vector<std::string> files, const char* function) {
  const Library found = Library::find(std::move(files));
  if (!found) return found.error();
  using Version = std::size_t();
  Version* const ask = found.symbol_or_null<Version>(function);
  if (!ask) return "found, but it does not say its version";
  const std::size_t v = ask();
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
         std::to_string(v % 100);
}
std::string blas_version() {
  return library_version({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
                         "cublasLtGetVersion");
}
std::string dnn_version() {
  return library_version({"libcudnn.so.9", "libcudnn.so"}, "cudnnGetVersion");
}

Limits pretended(Limits limits) {
  if (const char* arch = std::getenv("TESSERA_CUDA_ARCH")) limits.arch = std::atoi(arch);
  return limits;
}

}  // namespace

int local_rank(int thread, const Environment& environment) {
  if (thread >= 0) return thread;
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK",
                           "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"})
    if (const char* value = environment(name)) return std::max(0, std::atoi(value));
  return 0;
}

int card_for(int count, int thread, const Environment& environment) {
  const char* named = environment("TESSERA_CUDA_CARD");
  const int wanted = named ? std::atoi(named) : local_rank(thread, environment) % count;
  if (wanted >= 0 && wanted < count) return wanted;
  throw Error(ErrorKind::usage,
              "TESSERA_CUDA_CARD names the card " + std::string(named) +
                  ", but this process may use " + std::to_string(count) + ", counted from 0",
              "cuda", "choose one of those that `tessera version --verbose` lists");
}

const Machinery& machinery() {
  static const Machinery found = look();
  return found;
}

const Card& own_card() {
  const Machinery& here = machinery();
  if (here.cards.empty())
    fail(here.status == cudaSuccess ? cudaErrorNoDevice : here.status, "look for a card");
  const int wanted = card_for(static_cast<int>(here.cards.size()), comm::thread_rank(), look_up);
  const Card& card = here.cards[static_cast<std::size_t>(wanted)];
  if (card.arch < oldest)
    throw Error(ErrorKind::device,
                "expected a card of compute capability 7.5 or more, found " + card.name + " with " +
                    capability(card.arch),
                "cuda", "use a newer card, or --device cpu");
  return card;
}

bool dnn_wanted() {
  const char* off = std::getenv("TESSERA_CUDNN");
  if (off && std::string_view(off) == "0") return false;
  static const bool there =
      TESSERA_CUDNN_BUILT && static_cast<bool>(Library::find({"libcudnn.so.9", "libcudnn.so"}));
  return there;
}

Limits limits_of(const Card& card, bool dnn) {
  return pretended({.arch = card.arch,
                    .multiprocessors = card.multiprocessors,
                    .shared_per_block = card.shared_per_block,
                    .dnn = dnn});
}

Limits limits() {
  if (machinery().cards.empty()) return pretended({});
  return limits_of(own_card(), dnn_wanted());
}

Choices choices_on(const Card& card) {
  return Choices({{"card", card.name},
                  {"compute capability", capability(limits_of(card, true).arch)},
                  {"cublasLt", blas_version()},
                  {"cudnn", dnn_wanted() ? dnn_version() : "not used"}},
                 {{"driver", version(machinery().driver)}});
}

void expect_dtype(int arch, ir::DType dtype) {
  constexpr int first_with_bf16 = 80;
  if (dtype != ir::DType::bf16 || arch >= first_with_bf16) return;
  throw Error(ErrorKind::device,
              "expected a card that computes in bf16 (compute capability 8.0 or more), found one "
              "of compute capability " +
                  capability(arch),
              "precision.dtype",
              "choose --dtype f16, whose loss is scaled, or --dtype f32; or a newer card");
}

bool built() { return true; }

std::string missing() {
  try {
    own_card();
    return "";
  } catch (const Error& e) {
    return e.message;
  }
}

std::vector<std::pair<std::string, std::string>> facts() {
  const Machinery& here = machinery();
  std::vector<std::pair<std::string, std::string>> out = {
      {"cuda runtime", version(here.runtime) + " (linked)"}, {"cuda driver", version(here.driver)}};
  for (const Card& card : here.cards)
    out.emplace_back("card " + std::to_string(card.index),
                     card.name + ", compute capability " + capability(card.arch) + ", " +
                         std::to_string(card.multiprocessors) + " multiprocessors, " +
                         std::to_string(card.memory / 1'000'000) + " MB");
  if (here.cards.empty())
    out.emplace_back("cards", missing());
  else
    out.emplace_back("peer access", peer_access(here.cards));
  out.emplace_back("cublasLt", blas_version());
  out.emplace_back("cudnn", dnn_version());
  out.emplace_back("nccl", nccl_missing().empty() ? nccl_version() : nccl_missing());
  return out;
}

}  // namespace tessera::exec::cuda
