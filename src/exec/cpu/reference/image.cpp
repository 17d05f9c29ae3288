#include "exec/common/pixel_table.h"
#include "exec/cpu/reference/instantiate.h"

namespace tessera::exec::cpu {

template <class T>
void reference_normalise(const Call& call) {
  const ir::Normalise& attrs = call.attr<ir::Normalise>();
  const std::int64_t channels = call.in[0].shape.back();
  for (std::int64_t i = 0; i < call.in[0].elements(); ++i)
    call.out[0].as<T>()[i] = static_cast<T>(normalised(
        attrs, static_cast<std::size_t>(i % channels), call.in[0].as<std::uint8_t>()[i]));
}

REFERENCE(normalise)

}  // namespace tessera::exec::cpu
