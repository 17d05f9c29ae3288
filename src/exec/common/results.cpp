#include "exec/common/results.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "exec/common/quantised.h"

namespace tessera::exec {

double number_at(const std::byte* bytes, ir::DType dtype) {
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, bytes, sizeof(T));
    return value;
  };
  switch (dtype) {
    case ir::DType::f64:
      return as(double{});
    case ir::DType::f32:
      return static_cast<double>(as(float{}));
    case ir::DType::bf16:
      return static_cast<double>(
          std::bit_cast<float>(static_cast<std::uint32_t>(as(std::uint16_t{})) << 16));
    case ir::DType::f16:
      return static_cast<double>(from_half(as(std::uint16_t{})));
    case ir::DType::i64:
      return static_cast<double>(as(std::int64_t{}));
    case ir::DType::i32:
      return static_cast<double>(as(std::int32_t{}));
    case ir::DType::u8:
      return static_cast<double>(as(std::uint8_t{}));
    case ir::DType::f8e4m3:
    case ir::DType::f8e5m2:
    case ir::DType::i8:
      return static_cast<double>(from_quantised(as(std::uint8_t{}), dtype));
  }
  CHECK(false, "a dtype that nobody knows");
  return 0;
}

Results collect_results(const plan::Plan& plan,
                        const std::function<const std::byte*(const plan::Slot&)>& address,
                        Timeline timeline) {
  Results out{{}, std::move(timeline)};
  for (const plan::Binding& output : plan.outputs)
    if (output.slot && output.slot.type.rank() == 0)
      out.scalars.emplace(output.name, number_at(address(output.slot), output.slot.type.dtype));
  return out;
}

double Results::scalar(std::string_view output) const {
  const auto it = scalars.find(output);
  CHECK(it != scalars.end(), "the run has no single number " + std::string(output));
  return it->second;
}

}  // namespace tessera::exec
