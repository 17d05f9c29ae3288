// The drawing kit of the synthetic data: ten shapes, eight textures, and a sprite that puts one on
// a canvas. Convention: a shape lives in a square of +-1024 units around its centre; places on the
// canvas are counted in quarter pixels.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/rng.h"

namespace tessera::data {

// All shapes and textures are their own mirror images up to a rotation, so that a horizontal flip
// never changes the class.
inline constexpr std::array<std::string_view, 10> shape_names = {
    "disc", "square", "triangle", "ring", "cross", "star", "crescent", "bar", "frame", "bowtie"};
inline constexpr std::array<std::string_view, 8> texture_names = {
    "plain", "barred", "striped", "checkered", "dotted", "zoned", "speckled", "gridded"};

inline constexpr int max_channels = 16;
using Colour = std::array<std::uint8_t, max_channels>;

struct Canvas {
  int h, w, c;
  std::span<std::uint8_t> pixels;  // HWC
};

struct Sprite {
  int shape = 0, texture = 0;
  int x4 = 0, y4 = 0, radius4 = 4;  // centre and radius in quarter pixels
  int cosine = 16384, sine = 0;     // of the rotation, times 16384
  int period = 512, tilt = 0;       // of the texture: in shape units; slope times 1024
  int phase_x = 0, phase_y = 0;
  Colour first{}, second{};  // the texture alternates between them
  Key cells;                 // for the speckles
};

void draw(const Canvas& canvas, const Sprite& sprite);

}  // namespace tessera::data
