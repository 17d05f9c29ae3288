// PNG and JPEG files to images, and images to PNG.
// Convention: the format is told by the first bytes, never by the name; sizes are checked against
// the limits before pixels are allocated; damaged or cut-off input is Error(data), not a half-grey
// image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "data/image.h"

namespace tessera::data {

struct DecodeLimits {
  int max_side = 16384;
  std::int64_t max_pixels = std::int64_t{64} << 20;
  std::size_t max_file_bytes = std::size_t{256} << 20;
};

// Grey stays 1 channel, grey+alpha 2, RGB 3, RGBA 4; palettes become RGB or RGBA, CMYK becomes RGB,
// 16 bits become 8.
Image decode_image(const std::filesystem::path& path, const DecodeLimits& limits = {});
Image decode_image(std::span<const std::byte> bytes, std::string_view name,
                   const DecodeLimits& limits = {});
// The same into an image whose storage is reused; a JPEG may be shrunk on the way, and parts of it
// left out, as far as `wants` allows. A file that was cut off is refused even when what is missing
// was not wanted.
void decode_image(const std::filesystem::path& path, const Wants& wants, Image& out,
                  const DecodeLimits& limits = {});
void decode_image(std::span<const std::byte> bytes, std::string_view name, const Wants& wants,
                  Image& out, const DecodeLimits& limits = {});

// The whole file into `bytes`, whose storage is reused.
void read_image_file(const std::filesystem::path& path, std::vector<std::byte>& bytes,
                     const DecodeLimits& limits = {});

// 1 to 4 channels. Throws Error(disk) when it cannot be written.
void write_png(const std::filesystem::path& path, const Image& image);

// One function per format, for bytes that begin with its signature.
void decode_png(std::span<const std::byte> bytes, std::string_view name, const DecodeLimits& limits,
                Image& out);
void decode_jpeg(std::span<const std::byte> bytes, std::string_view name, const Wants& wants,
                 const DecodeLimits& limits, Image& out);
void check_dimensions(std::uint64_t height, std::uint64_t width, std::string_view name,
                      const DecodeLimits& limits);

}  // namespace tessera::data
