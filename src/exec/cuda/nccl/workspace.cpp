// Messages that NCCL carries need memory beside their operands: room to put parts side by side.
// Convention: it is planned for messages through the host as well, so that a plan is the same
// however they travel.
#include "exec/cuda/nccl/parts.h"

namespace tessera::exec::cuda {
namespace {

std::int64_t if_scattered(const ir::Type& type, int dim) {
  return Around(type.shape, dim).outer > 1 ? whole_lines(type.bytes()) : 0;
}

}  // namespace

std::int64_t workspace_all_gather(const ir::Attrs& attrs, std::span<const ir::Type>,
                                  std::span<const ir::Type> out, const Limits&) {
  return if_scattered(out[0], std::get<ir::Collective>(attrs).dim);
}
std::int64_t workspace_reduce_scatter(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                      std::span<const ir::Type>, const Limits&) {
  return if_scattered(in[0], std::get<ir::Collective>(attrs).dim);
}
std::int64_t workspace_all_to_all(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                  std::span<const ir::Type> out, const Limits&) {
  const auto& a = std::get<ir::Collective>(attrs);
  return if_scattered(in[0], a.dim) + if_scattered(out[0], a.from);
}

}  // namespace tessera::exec::cuda
