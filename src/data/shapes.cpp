#include "data/shapes.h"

#include <algorithm>
#include <cstdlib>

namespace tessera::data {
namespace {

// Five lines at cos(72 deg) from the centre; the star is where at most one of them is crossed.
bool in_star(int u, int v) {
  constexpr int nx[] = {0, 974, 602, -602, -974}, ny[] = {-1024, -316, 828, 828, -316};
  int crossed = 0;
  for (int k = 0; k < 5; ++k) crossed += (u * nx[k] + v * ny[k]) / 1024 > 330;
  return crossed <= 1 && u * u + v * v < 1024 * 1024;
}

bool inside(int shape, int u, int v) {
  const int au = std::abs(u), av = std::abs(v), rr = u * u + v * v;
  switch (shape) {
    case 0:
      return rr < 900 * 900;
    case 1:
      return std::max(au, av) < 780;
    case 2:
      return v > -512 && 1774 * au / 1024 + v < 1024;
    case 3:
      return rr < 960 * 960 && rr > 540 * 540;
    case 4:
      return std::min(au, av) < 300 && std::max(au, av) < 960;
    case 5:
      return in_star(u, v);
    case 6:
      return rr < 960 * 960 && (u - 480) * (u - 480) + v * v > 800 * 800;
    case 7:
      return au < 990 && av < 330;
    case 8:
      return std::max(au, av) < 830 && std::max(au, av) > 450;
    default:
      return au < 900 && av * 10 < au * 8;
  }
}

// Position inside a period that may start left of zero.
int wrap(int value, int period) {
  const int rest = value % period;
  return rest < 0 ? rest + period : rest;
}
int cell(int value, int period) { return (value - wrap(value, period)) / period; }

bool second_colour(const Sprite& sprite, int s, int t) {
  const int p = sprite.period, x = s + sprite.phase_x + t * sprite.tilt / 1024,
            y = t + sprite.phase_y - s * sprite.tilt / 1024;
  switch (sprite.texture) {
    case 0:
      return false;
    case 1:
      return wrap(y, p) * 2 < p;
    case 2:
      return wrap(x, p) * 2 < p;
    case 3:
      return (wrap(x, p) * 2 < p) != (wrap(y, p) * 2 < p);
    case 4: {
      const int dx = wrap(x, p) - p / 2, dy = wrap(y, p) - p / 2;
      return dx * dx + dy * dy < p * p / 10;
    }
    case 5:
      return (s * s + t * t) / (p * p / 2) % 2 == 1;
    case 6:
      return random_bits(sprite.cells,
                         static_cast<std::uint64_t>(cell(x, p / 3) * 64 + cell(y, p / 3) + 4096)) &
             1;
    default:
      return wrap(x, p) * 7 < p * 2 || wrap(y, p) * 7 < p * 2;
  }
}

}  // namespace

void draw(const Canvas& canvas, const Sprite& sprite) {
  // One turn and one scale in a single step: quarter pixels to shape units. Within the box below
  // every product fits in 32 bits.
  const int r = std::max(sprite.radius4, 4), cosine = sprite.cosine * 1024 / r,
            sine = sprite.sine * 1024 / r, scale = 16384 * 1024 / r;
  const int x0 = std::max(0, (sprite.x4 - r) / 4), x1 = std::min(canvas.w, (sprite.x4 + r) / 4 + 1);
  const int y0 = std::max(0, (sprite.y4 - r) / 4), y1 = std::min(canvas.h, (sprite.y4 + r) / 4 + 1);
  for (int y = y0; y < y1; ++y)
    for (int x = x0; x < x1; ++x) {
      int covered = 0;  // of four samples
      for (int k = 0; k < 4; ++k) {
        const int dx = 4 * x + 1 + 2 * (k & 1) - sprite.x4, dy = 4 * y + 1 + (k & 2) - sprite.y4;
        covered += inside(sprite.shape, (dx * cosine + dy * sine) / 16384,
                          (dy * cosine - dx * sine) / 16384);
      }
      if (covered == 0) continue;
      const int s = (4 * x + 2 - sprite.x4) * scale / 16384,
                t = (4 * y + 2 - sprite.y4) * scale / 16384;
      const Colour& colour = second_colour(sprite, s, t) ? sprite.second : sprite.first;
      std::uint8_t* pixel = &canvas.pixels[(static_cast<std::size_t>(y) * canvas.w + x) * canvas.c];
      for (int k = 0; k < canvas.c; ++k)
        pixel[k] = static_cast<std::uint8_t>(pixel[k] + (colour[k] - pixel[k]) * covered / 4);
    }
}

}  // namespace tessera::data
