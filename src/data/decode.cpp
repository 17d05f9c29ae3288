#include "data/decode.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "files/text.h"  // open_regular

namespace tessera::data {
namespace {

bool begins_with(std::span<const std::byte> bytes, std::initializer_list<int> signature) {
  return bytes.size() >= signature.size() &&
         std::equal(signature.begin(), signature.end(), bytes.begin(),
                    [](int a, std::byte b) { return a == static_cast<int>(b); });
}

}  // namespace

void check_dimensions(std::uint64_t height, std::uint64_t width, std::string_view name,
                      const DecodeLimits& limits) {
  const auto side = static_cast<std::uint64_t>(limits.max_side);
  if (height == 0 || width == 0)
    throw Error(ErrorKind::data, fmt::format("an image of {} x {} pixels", width, height),
                std::string(name));
  if (height > side || width > side ||
      height * width > static_cast<std::uint64_t>(limits.max_pixels))
    throw Error(
        ErrorKind::data,
        fmt::format("the image claims {} x {} pixels; at most {} a side and {} in all are accepted",
                    width, height, side, limits.max_pixels),
        std::string(name), "shrink the image first");
}

void read_image_file(const std::filesystem::path& path, std::vector<std::byte>& bytes,
                     const DecodeLimits& limits) {
  const files::OpenFile file = files::open_regular(path, ErrorKind::data);
  const bool fits = file.size <= limits.max_file_bytes;
  std::size_t done = 0;
  ssize_t got = 1;
  if (fits) {
    bytes.resize(file.size);
    while (done < file.size && (got > 0 || errno == EINTR)) {
      errno = 0;
      got = ::read(file.descriptor, bytes.data() + done, file.size - done);
      if (got > 0) done += static_cast<std::size_t>(got);
    }
  }
  const int problem = errno;
  ::close(file.descriptor);
  if (!fits)
    throw Error(ErrorKind::data,
                fmt::format("the file has {} bytes, at most {} are accepted for an image",
                            file.size, limits.max_file_bytes),
                path.string());
  if (done < file.size)
    throw Error(
        ErrorKind::data,
        fmt::format("cannot read the file: {}",
                    got < 0 ? std::strerror(problem) : "it became shorter while it was read"),
        path.string());
}

void decode_image(std::span<const std::byte> bytes, std::string_view name, const Wants& wants,
                  Image& out, const DecodeLimits& limits) {
  if (bytes.size() > limits.max_file_bytes)
    throw Error(ErrorKind::data,
                fmt::format("{} bytes, at most {} are accepted for an image", bytes.size(),
                            limits.max_file_bytes),
                std::string(name));
  if (begins_with(bytes, {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}))
    return decode_png(bytes, name, limits, out);
  if (begins_with(bytes, {0xff, 0xd8, 0xff})) return decode_jpeg(bytes, name, wants, limits, out);
  throw Error(ErrorKind::data,
              bytes.empty() ? "the file is empty" : "neither PNG nor JPEG by its first bytes",
              std::string(name), "convert the image to PNG or JPEG");
}

void decode_image(const std::filesystem::path& path, const Wants& wants, Image& out,
                  const DecodeLimits& limits) {
  thread_local std::vector<std::byte> bytes;
  read_image_file(path, bytes, limits);
  decode_image(bytes, path.native(), wants, out, limits);
}

Image decode_image(std::span<const std::byte> bytes, std::string_view name,
                   const DecodeLimits& limits) {
  Image out;
  decode_image(bytes, name, Wants{}, out, limits);
  return out;
}

Image decode_image(const std::filesystem::path& path, const DecodeLimits& limits) {
  Image out;
  decode_image(path, Wants{}, out, limits);
  return out;
}

}  // namespace tessera::data
