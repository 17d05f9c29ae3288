// Element types of safetensors and their conversion to double and float.
// Convention: files are little-endian and so are all our hosts; elements are copied out because a
// view may be unaligned.
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "files/safetensors.h"

namespace tessera::files {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

struct Bf16 {
  std::uint16_t bits;
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  explicit operator double() const { return static_cast<float>(*this); }
};

struct F16 {
  std::uint16_t bits;
  explicit operator float() const { return from_half(bits); }
  explicit operator double() const { return from_half(bits); }
};

template <class From, class To>
std::vector<To> convert(const TensorView& view) {
  std::vector<To> out(view.bytes.size() / sizeof(From));
  for (std::size_t i = 0; i < out.size(); ++i) {
    From element;
    std::memcpy(&element, view.bytes.data() + i * sizeof(From), sizeof(From));
    out[i] = static_cast<To>(element);
  }
  return out;
}

template <class To>
std::vector<To> numbers(const TensorView& view, std::string_view name) {
  const std::string_view dtype = view.dtype;
  if (dtype == "F32") return convert<float, To>(view);
  if (dtype == "F64") return convert<double, To>(view);
  if (dtype == "BF16") return convert<Bf16, To>(view);
  if (dtype == "F16") return convert<F16, To>(view);
  if (dtype == "I64") return convert<std::int64_t, To>(view);
  if (dtype == "U64") return convert<std::uint64_t, To>(view);
  if (dtype == "I32") return convert<std::int32_t, To>(view);
  if (dtype == "U32") return convert<std::uint32_t, To>(view);
  if (dtype == "I16") return convert<std::int16_t, To>(view);
  if (dtype == "U16") return convert<std::uint16_t, To>(view);
  if (dtype == "I8") return convert<std::int8_t, To>(view);
  if (dtype == "U8" || dtype == "BOOL") return convert<std::uint8_t, To>(view);
  throw Error(ErrorKind::weights, "dtype " + view.dtype + " cannot be read as numbers",
              name.empty() ? "" : "tensor '" + std::string(name) + "'",
              "export the tensor as F32, F64, BF16, F16, I64 or I32");
}

}  // namespace

std::size_t dtype_size(std::string_view dtype) {
  static constexpr struct {
    std::string_view name;
    std::size_t size;
  } table[] = {{"F32", 4},  {"F64", 8},     {"BF16", 2},    {"F16", 2},     {"I64", 8}, {"I32", 4},
               {"I16", 2},  {"I8", 1},      {"U64", 8},     {"U32", 4},     {"U16", 2}, {"U8", 1},
               {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"C64", 8}};
  for (const auto& row : table)
    if (row.name == dtype) return row.size;
  return 0;
}

std::vector<double> to_doubles(const TensorView& view, std::string_view name) {
  return numbers<double>(view, name);
}
std::vector<float> to_floats(const TensorView& view, std::string_view name) {
  return numbers<float>(view, name);
}

}  // namespace tessera::files
