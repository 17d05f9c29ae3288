#include "data/decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/check.h"

namespace tessera::data {
namespace {

std::vector<std::byte> read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  std::error_code problem;
  const auto status = std::filesystem::status(path, problem);
  if (!std::filesystem::exists(status)) throw Error(ErrorKind::data, "no such file", path.string());
  if (!std::filesystem::is_regular_file(status))
    throw Error(ErrorKind::data, "expected an image file, found a folder or device", path.string());
  const auto size = std::filesystem::file_size(path, problem);
  if (!problem && size > max_bytes)
    throw Error(ErrorKind::data, fmt::format("the file has {} bytes, at most {} are accepted for an image", size, max_bytes),
                path.string());
  std::ifstream file(path, std::ios::binary);
  std::vector<std::byte> bytes(problem ? 0 : size);
  if (problem || !file || !file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size())))
    throw Error(ErrorKind::data, fmt::format("cannot read the file: {}", std::strerror(errno)), path.string());
  return bytes;
}

bool begins_with(std::span<const std::byte> bytes, std::initializer_list<int> signature) {
  return bytes.size() >= signature.size() &&
         std::equal(signature.begin(), signature.end(), bytes.begin(), [](int a, std::byte b) { return a == static_cast<int>(b); });
}

}  // namespace

void check_dimensions(std::uint64_t height, std::uint64_t width, std::string_view name, const DecodeLimits& limits) {
  const auto side = static_cast<std::uint64_t>(limits.max_side);
  if (height == 0 || width == 0) throw Error(ErrorKind::data, fmt::format("an image of {} x {} pixels", width, height), std::string(name));
  if (height > side || width > side || height * width > static_cast<std::uint64_t>(limits.max_pixels))
    throw Error(ErrorKind::data,
                fmt::format("the image claims {} x {} pixels; at most {} a side and {} in all are accepted", width, height, side,
                            limits.max_pixels),
                std::string(name), "shrink the image first");
}

Image decode_image(std::span<const std::byte> bytes, std::string_view name, const DecodeLimits& limits) {
  if (bytes.size() > limits.max_file_bytes)
    throw Error(ErrorKind::data, fmt::format("{} bytes, at most {} are accepted for an image", bytes.size(), limits.max_file_bytes),
                std::string(name));
  if (begins_with(bytes, {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'})) return decode_png(bytes, name, limits);
  if (begins_with(bytes, {0xff, 0xd8, 0xff})) return decode_jpeg(bytes, name, limits);
  throw Error(ErrorKind::data, bytes.empty() ? "the file is empty" : "neither PNG nor JPEG by its first bytes", std::string(name),
              "convert the image to PNG or JPEG");
}

Image decode_image(const std::filesystem::path& path, const DecodeLimits& limits) {
  const std::vector<std::byte> bytes = read_file(path, limits.max_file_bytes);
  return decode_image(bytes, path.string(), limits);
}

}  // namespace tessera::data
