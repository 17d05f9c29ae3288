#include "session/bytes.h"

#include <cstring>

#include "base/check.h"

namespace tessera::run {
namespace {

template <class T>
void write(std::span<const double> values, std::byte* to) {
  for (const double v : values) {
    const T element = static_cast<T>(v);
    std::memcpy(to, &element, sizeof(T));
    to += sizeof(T);
  }
}

template <class T>
void read(const std::byte* from, std::span<double> values) {
  for (double& v : values) {
    T element;
    std::memcpy(&element, from, sizeof(T));
    v = static_cast<double>(element);
    from += sizeof(T);
  }
}

}  // namespace

std::vector<std::byte> encode(std::span<const double> values, ir::DType dtype) {
  std::vector<std::byte> out(values.size() * static_cast<std::size_t>(ir::size_of(dtype)));
  switch (dtype) {
    case ir::DType::f64:
      write<double>(values, out.data());
      break;
    case ir::DType::f32:
      write<float>(values, out.data());
      break;
    case ir::DType::i64:
      write<std::int64_t>(values, out.data());
      break;
    case ir::DType::i32:
      write<std::int32_t>(values, out.data());
      break;
    default:
      CHECK(false, "a run binds f64, f32, i64 and i32, not " + std::string(ir::name(dtype)));
  }
  return out;
}

std::vector<double> decode(std::span<const std::byte> bytes, ir::DType dtype) {
  std::vector<double> out(bytes.size() / static_cast<std::size_t>(ir::size_of(dtype)));
  switch (dtype) {
    case ir::DType::f64:
      read<double>(bytes.data(), out);
      break;
    case ir::DType::f32:
      read<float>(bytes.data(), out);
      break;
    case ir::DType::i64:
      read<std::int64_t>(bytes.data(), out);
      break;
    case ir::DType::i32:
      read<std::int32_t>(bytes.data(), out);
      break;
    default:
      CHECK(false, "a run reads f64, f32, i64 and i32, not " + std::string(ir::name(dtype)));
  }
  return out;
}

}  // namespace tessera::run
