// Winograd's algorithm for 3x3 convolutions of stride 1 in f32: a tile of 4x4 result pixels is 36
// products instead of 144. The 36 are the values of polynomials at the points 0, +-5/8, +-3/2 and
// infinity of both directions, which round less than half as much in f32 as the usual points 0, +-1
// and +-2: the error of a result is about three times that of the plain sum (docs/decisions.md).
#pragma once

#include <cstdint>
#include <span>

#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

inline constexpr std::int64_t winograd_side = 4;     // of a tile of the result
inline constexpr std::int64_t winograd_reads = 6;    // side of what such a tile reads
inline constexpr std::int64_t winograd_values = 36;  // points of a tile

// Whether the algorithm serves these operands of a conv, and saves half of the products or more.
bool winograd_pays(const ir::Conv& attr, std::span<const ir::Type> in);
// Bytes of 3x3 filters [3,3,c,o] at all points, packed for the products.
std::int64_t winograd_bytes(const ir::Shape& filters);
Scratch winograd_scratch(const ir::Conv& attr, const ir::Shape& x, const ir::Shape& filters);
// A conv of f32 whose Call::packed has been filled by winograd_pack, for any number of pixels and
// channels. The bits of a pixel depend neither on threads nor on the pixels beside its tile.
void winograd_conv(const Call& call);
void winograd_pack(const Call& call);

// The same in a training, whose filters are new in each step: a conv of images and filters alone,
// and the gradient of its images. Whether it serves is a question of one image, so that bits do not
// depend on how many samples a rank has. `x` is the shape of the conv's images, `f` that of its
// filters; f16 is widened for the kernel, so it is served as well.
bool winograd_trains(const ir::Conv& attr, const ir::Shape& x, const ir::Type& f);
Scratch winograd_training_scratch(const ir::Conv& attr, const ir::Shape& x, const ir::Shape& f);
void winograd_train_conv(const Call& call);
void winograd_input_grad(const Call& call);

// Three by three numbers of `size` filters, a tap at f[tap * number], at all points, in double:
// to[point * pitch + i].
void winograd_filters(const float* f, std::int64_t tap, std::int64_t size, float* to,
                      std::int64_t pitch);

// The values of one tile at all points: number k of channel c of pixel i lies at pixels[i][c], its
// values at to[point * pitch + c].
void winograd_input(const float* const* pixels, std::int64_t channels, float* to,
                    std::int64_t pitch);
// A tile of the result, or as much of it as there is.
struct WinogradTile {
  float* to;
  std::int64_t row, col;    // distance between its rows and between its columns
  std::int64_t rows, cols;  // that lie inside of the image, at most 4 of each
  Finish finish;            // the addend begins where the tile does, and lies like it
};
// The pixels of a tile from the values of its products, at from[point * pitch + channel].
void winograd_output(const float* from, std::int64_t pitch, std::int64_t channels,
                     const WinogradTile& tile);

}  // namespace tessera::exec::cpu
