#include "exec/device.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "exec/cpu/cpu.h"
#include "exec/cuda/cuda.h"
#include "exec/executor.h"

namespace tessera::exec {
namespace {

struct Row {
  std::string_view name;
  bool (*built)();
  std::string (*missing)();
  DeviceInfo (*info)(int threads);
  plan::Target (*target)(int threads, const Liberties& liberties);
  std::unique_ptr<Executor> (*make)(int threads, Groups groups, Carrier carrier, std::string folder,
                                    Liberties liberties);
};
constexpr std::array rows{
    Row{"cpu", [] { return true; }, [] { return std::string(); }, cpu::info, cpu::target,
        [](int threads, Groups groups, Carrier, std::string folder, Liberties liberties) {
          return cpu::make(threads, std::move(groups), std::move(folder), liberties);
        }},
    Row{"cuda", cuda::built, cuda::missing, cuda::info,
        [](int threads, const Liberties&) { return cuda::target(threads); }, cuda::make}};

const Row& row_of(std::string_view device) {
  for (const Row& row : rows)
    if (row.name == device && row.built()) return row;
  const bool known = device == "cuda";
  throw Error(
      ErrorKind::usage, "this build has no executor for the device '" + std::string(device) + "'",
      "run.device",
      "choose " + join(device_names(), " or ") +
          (known ? ", or build where the CUDA toolkit (nvcc) is: cmake --preset cuda" : ""));
}

}  // namespace

Threading threading_named(std::string_view name) {
  constexpr std::array<std::string_view, 4> names{"auto", "heads", "rows", "products"};
  const auto found = std::find(names.begin(), names.end(), name);
  CHECK(found != names.end(), "no way to share work out among threads: " + std::string(name));
  return static_cast<Threading>(found - names.begin());
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Row& row : rows)
    if (row.built()) names.emplace_back(row.name);
  return names;
}

std::string missing(std::string_view device) { return row_of(device).missing(); }

std::string lacks(std::string_view device, std::string_view dtype) {
  if (std::string why = missing(device); !why.empty()) return why;
  const plan::Target target = target_of(device, 1);
  try {
    // fp8 is bf16 around products that every device has, in its own way.
    const ir::DType elements = dtype == "fp8" ? ir::DType::bf16 : ir::parse_dtype(dtype);
    const bool takes = !target.supports || target.supports(ir::Op::contract, elements);
    return takes ? "" : "it has no kernels for elements of type " + std::string(dtype);
  } catch (const Error& e) {
    return e.message;
  }
}

std::vector<std::pair<std::string, std::string>> device_facts() { return cuda::facts(); }

DeviceInfo device_info(std::string_view device, int threads) {
  return row_of(device).info(threads);
}
plan::Target target_of(std::string_view device, int threads, const Liberties& liberties) {
  return row_of(device).target(threads, liberties);
}
std::unique_ptr<Executor> make_executor(std::string_view device, int threads, Groups groups,
                                        Carrier carrier, std::string folder, Liberties liberties) {
  return row_of(device).make(threads, std::move(groups), carrier, std::move(folder), liberties);
}

}  // namespace tessera::exec
