// Pixels to numbers. The bits are those of the table (exec/common/pixel_table.h); where straight
// lines were found that give the table's bits for all 256 values of every channel, they are
// computed a vector at a time, and the memory is the limit.
#include <algorithm>
#include <array>
#include <bit>

#include "exec/common/pixel_line.h"
#include "exec/cpu/kernel.h"
#include "exec/cpu/low.h"
#include "exec/cpu/simd/pixels.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {
namespace {

struct PixelMap {
  PixelTable table;
  std::vector<float> lines;  // of vector_pixel_lines(); empty: the table is looked up
};

void set_lines(const PixelLine& line, std::size_t channel, std::size_t channels,
               std::vector<float>& lines) {
  for (std::size_t i = channel; i < pixel_block; i += channels) {
    lines[i] = line.slope;
    lines[pixel_block + i] = line.offset;
    lines[2 * pixel_block + i] = line.slope_rest;
    lines[3 * pixel_block + i] = line.offset_rest;
  }
}

bool gives_the_table(const PixelMap& map, std::size_t channel) {
  for (int pixel = 0; pixel < 256; ++pixel) {
    std::array<std::uint8_t, pixel_block> same{};
    std::array<float, pixel_block> results{};
    same.fill(static_cast<std::uint8_t>(pixel));
    vector_pixel_lines(same.data(), results.data(), 1, map.lines.data());
    const float want = map.table[channel][static_cast<std::size_t>(pixel)];
    for (std::size_t i = channel; i < pixel_block; i += map.table.size())
      if (std::bit_cast<std::uint32_t>(results[i]) != std::bit_cast<std::uint32_t>(want))
        return false;
  }
  return true;
}

PixelMap find_map(const ir::Normalise& attrs, std::size_t channels) {
  PixelMap map{pixel_table(attrs, channels), {}};
  if (channels == 0 || pixel_block % channels != 0) return map;
  map.lines.resize(4 * pixel_block);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const auto found = find_pixel_line(attrs, channel, [&](const PixelLine& line) {
      set_lines(line, channel, channels, map.lines);
      return gives_the_table(map, channel);
    });
    if (found) continue;
    map.lines.clear();
    return map;
  }
  return map;
}

void look_up(const PixelTable& table, const std::uint8_t* x, std::int64_t first, std::int64_t n,
             float* y) {
  const auto channels = static_cast<std::int64_t>(table.size());
  std::int64_t channel = first % channels;
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = table[static_cast<std::size_t>(channel)][x[i]];
    if (++channel == channels) channel = 0;
  }
}

}  // namespace

void fast_normalise(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  const PixelMap& map = call.once<PixelMap>([&] {
    return find_map(call.attr<ir::Normalise>(), static_cast<std::size_t>(x.shape.back()));
  });
  constexpr std::int64_t grain = chunk / pixel_block * pixel_block;
  const std::int64_t step = is_bf16(y) ? low_piece / pixel_block * pixel_block : grain;
  for_chunks(call.pool, x.elements(), grain, [&](std::int64_t first, std::int64_t count) {
    Piece room;
    for (std::int64_t begin = first; begin < first + count; begin += step) {
      const std::int64_t size = std::min(step, first + count - begin);
      const std::uint8_t* from = x.as<std::uint8_t>() + begin;
      float* to = room_for(y, begin, room.data());
      const std::int64_t blocks = map.lines.empty() ? 0 : size / pixel_block,
                         done = blocks * pixel_block;
      vector_pixel_lines(from, to, blocks, map.lines.data());
      look_up(map.table, from + done, begin + done, size - done, to + done);
      give(y, begin, size, to);
    }
  });
}

}  // namespace tessera::exec::cpu
