// NumPy's .npy files as images of numbers: u8, u16 or f32, [height, width] or [height, width,
// channels].
// Convention: the header is checked against the limits and the length of the file before anything
// is allocated for the numbers; whatever is wrong is Error(data) that names the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "data/decode.h"

namespace tessera::data {

struct NpyHeader {
  enum Element { u8, u16, f32 } element = u8;
  bool big_endian = false, fortran = false;
  int h = 0, w = 0, c = 0;
  bool channels_first = false;  // stored as [channels, height, width]
  std::size_t data = 0;         // where the numbers begin
  std::size_t bytes() const;    // of an element
};

// `channels`: of the model; 0: whatever there is. An array [channels, height, width] is taken where
// only that way round has as many.
NpyHeader npy_header(std::span<const std::byte> bytes, std::string_view name, int channels,
                     const DecodeLimits& limits = {});
// Numbers in the layout of images: u8 / 255, u16 / 65535, f32 as they are. Error(data) also where
// one is NaN or infinite.
void decode_npy(std::span<const std::byte> bytes, std::string_view name, int channels, Image& out,
                const DecodeLimits& limits = {});
void decode_npy(const std::filesystem::path& path, int channels, Image& out,
                const DecodeLimits& limits = {});

}  // namespace tessera::data
