#include "exec/device.h"

#include <array>

#include "base/check.h"
#include "exec/cpu/cpu.h"
#include "exec/executor.h"

namespace tessera::exec {
namespace {

struct Row {
  std::string_view name;
  DeviceInfo (*info)(int threads);
  plan::Target (*target)(int threads);
  std::unique_ptr<Executor> (*make)(int threads, Groups groups);
};
constexpr std::array rows{Row{"cpu", cpu::info, cpu::target, cpu::make}};

const Row& row_of(std::string_view device) {
  for (const Row& row : rows)
    if (row.name == device) return row;
  throw Error(ErrorKind::usage,
              "this build has no executor for the device '" + std::string(device) + "'",
              "run.device", "choose " + join(device_names(), " or "));
}

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Row& row : rows) names.emplace_back(row.name);
  return names;
}

DeviceInfo device_info(std::string_view device, int threads) {
  return row_of(device).info(threads);
}
plan::Target target_of(std::string_view device, int threads) {
  return row_of(device).target(threads);
}
std::unique_ptr<Executor> make_executor(std::string_view device, int threads, Groups groups) {
  return row_of(device).make(threads, std::move(groups));
}

}  // namespace tessera::exec
