#include "data/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <span>

#include "base/check.h"
#include "base/rng.h"
#include "data/shapes.h"

namespace tessera::data {
namespace {

static_assert(max_synthetic_channels == max_channels);
static_assert(max_synthetic_classes == shape_names.size() * texture_names.size() *
                                           shape_names.size() * texture_names.size());

// The random choices of one image, in order.
class Draws {
 public:
  explicit Draws(Key key) : key_(key) {}
  int below(int n) {
    return static_cast<int>((random_bits(key_, count_++) >> 32) * static_cast<std::uint64_t>(n) >>
                            32);
  }
  int between(int low, int high) { return low + below(std::max(1, high - low + 1)); }

 private:
  Key key_;
  std::uint64_t count_ = 0;
};

// The parts of a class, as digits of the label; -1: not part of the class.
struct Parts {
  int shape = 0, texture = -1, companion = -1, companion_texture = -1;
};

Parts parts_of(int label, int classes) {
  constexpr int shapes = shape_names.size(), textures = texture_names.size();
  Parts parts;
  parts.shape = label % shapes;
  if (classes > shapes) parts.texture = label / shapes % textures;
  if (classes > shapes * textures) parts.companion = label / (shapes * textures) % shapes;
  if (classes > shapes * textures * shapes)
    parts.companion_texture = label / (shapes * textures * shapes);
  return parts;
}

std::string name_of(const Parts& parts) {
  const auto textured = [](int shape, int texture) {
    return texture < 0 ? std::string(shape_names[shape])
                       : fmt::format("{} {}", texture_names[texture], shape_names[shape]);
  };
  std::string name = textured(parts.shape, parts.texture);
  if (parts.companion >= 0) name += " with " + textured(parts.companion, parts.companion_texture);
  return name;
}

int difference(const Colour& a, const Colour& b, int channels) {
  int sum = 0;
  for (int k = 0; k < channels; ++k) sum += std::abs(a[k] - b[k]);
  return sum / channels;
}

Colour any_colour(Draws& draws, int channels, int low = 0, int high = 255) {
  Colour colour{};
  for (int k = 0; k < channels; ++k)
    colour[k] = static_cast<std::uint8_t>(draws.between(low, high));
  return colour;
}

// The first colour of the range that differs enough from all the others, or the best of a few.
Colour contrasting(Draws& draws, std::initializer_list<const Colour*> others, int least,
                   int channels, int low, int high) {
  Colour best{};
  int best_difference = -1;
  for (int tries = 0; tries < 12 && best_difference < least; ++tries) {
    const Colour colour = any_colour(draws, channels, low, high);
    int nearest = 255;
    for (const Colour* other : others)
      nearest = std::min(nearest, difference(colour, *other, channels));
    if (nearest > best_difference) {
      best = colour;
      best_difference = nearest;
    }
  }
  return best;
}

// An angle without a sine: t -> ((1-t^2), 2t) / (1+t^2) covers 45 degrees either way for |t| <=
// tan(45 deg / 2); `reach` is in 256ths of that. Any angle at all takes a swap and signs besides.
void turn(Draws& draws, Sprite& sprite, int reach, bool any) {
  const std::int64_t t = draws.between(-6786, 6786) * reach / 256, one = 16384,
                     sum = one * one + t * t;
  sprite.cosine = static_cast<int>((one * one - t * t) * one / sum);
  sprite.sine = static_cast<int>(2 * t * one * one / sum);
  if (any && draws.below(2)) {
    std::swap(sprite.cosine, sprite.sine);
    sprite.sine = -sprite.sine;
  }
  if (any && draws.below(2)) {
    sprite.cosine = -sprite.cosine;
    sprite.sine = -sprite.sine;
  }
}

// `hard` is 0 to 255: how far a sprite strays from an upright, plain one. texture -1: any but zones
// (5), which would draw a ring.
Sprite make_sprite(Draws& draws, int shape, int texture, int radius4, int hard, Key cells) {
  Sprite sprite;
  sprite.shape = shape;
  const int nuisance =
      draws.below(256) < hard ? draws.below(static_cast<int>(texture_names.size()) - 1) : 0;
  sprite.texture = texture >= 0 ? texture : nuisance < 5 ? nuisance : nuisance + 1;
  sprite.radius4 = radius4;
  turn(draws, sprite, hard, hard > 192);
  sprite.period = draws.between(600, 820);
  sprite.tilt = draws.between(-160, 160);
  sprite.phase_x = draws.below(sprite.period);
  sprite.phase_y = draws.below(sprite.period);
  sprite.cells = cells;
  return sprite;
}

// A gradient between two colours in a random direction; places along it are counted in 2^-20 of its
// length.
void paint_background(const Canvas& canvas, Draws& draws, const Colour& from, const Colour& to) {
  const std::int64_t gx = draws.between(-256, 256), gy = draws.between(-256, 256), one = 1 << 20;
  const std::int64_t length =
      std::max<std::int64_t>(1, std::abs(gx) * canvas.w + std::abs(gy) * canvas.h);
  const std::int64_t step_x = gx * one / length, step_y = gy * one / length;
  const std::int64_t start = (gx < 0 ? -step_x * canvas.w : 0) + (gy < 0 ? -step_y * canvas.h : 0);
  std::uint8_t* pixel = canvas.pixels.data();
  for (int y = 0; y < canvas.h; ++y)
    for (int x = 0; x < canvas.w; ++x) {
      const int along = static_cast<int>((start + step_x * x + step_y * y) >> 12);  // 0 to 256
      for (int k = 0; k < canvas.c; ++k)
        *pixel++ = static_cast<std::uint8_t>(from[k] + ((to[k] - from[k]) * along >> 8));
    }
}

void draw_blobs(const Canvas& canvas, Draws& draws, int count, int side4) {
  for (int i = 0; i < count; ++i) {
    const int shape = draws.below(
        static_cast<int>(shape_names.size()));  // one draw per statement: arguments have no order
    Sprite blob =
        make_sprite(draws, shape, 0, draws.between(side4 * 5 / 100, side4 * 12 / 100), 255, {});
    blob.x4 = draws.below(4 * canvas.w);
    blob.y4 = draws.below(4 * canvas.h);
    blob.first = any_colour(draws, canvas.c);
    draw(canvas, blob);
  }
}

// Triangular noise, four values from each 64 random bits.
void add_noise(std::span<std::uint8_t> pixels, Key key, int strength) {
  for (std::size_t i = 0; i < pixels.size(); i += 4) {
    std::uint64_t bits = random_bits(key, i / 4);
    for (std::size_t k = i; k < std::min(i + 4, pixels.size()); ++k, bits >>= 16) {
      const int noise = static_cast<int>(bits & 255) + static_cast<int>(bits >> 8 & 255) - 255;
      pixels[k] = static_cast<std::uint8_t>(std::clamp(pixels[k] + noise * strength / 256, 0, 255));
    }
  }
}

class Synthetic : public Dataset {
 public:
  Synthetic(const SyntheticSpec& spec, Split split, std::uint64_t seed)
      : spec_(spec),
        size_(split == Split::train ? spec.train : spec.test),
        key_(Key{seed}.with("synthetic").with(split == Split::train ? "train" : "test")) {
    for (int label = 0; label < spec.classes; ++label)
      names_.push_back(name_of(parts_of(label, spec.classes)));
  }

  std::int64_t size() const override { return size_; }
  const std::vector<std::string>& class_names() const override { return names_; }
  int height() const override { return spec_.h; }
  int width() const override { return spec_.w; }
  int channels() const override { return spec_.c; }

  std::int32_t label(std::int64_t index) const override {
    return static_cast<std::int32_t>(index % spec_.classes);
  }

  void get(std::int64_t index, const Wants&, Image& image) const override {
    CHECK(index >= 0 && index < size_, fmt::format("sample {} of {}", index, size_));
    image.reshape(spec_.h, spec_.w, spec_.c);
    const std::span<std::uint8_t> pixels = image.pixels;
    const Parts parts = parts_of(label(index), spec_.classes);
    const Key key = key_.with(static_cast<std::uint64_t>(index));
    Draws draws(key);
    const Canvas canvas{.h = spec_.h, .w = spec_.w, .c = spec_.c, .pixels = pixels};
    const int side4 = 4 * std::min(spec_.h, spec_.w);

    // Each image has its own difficulty, so that accuracy climbs for many epochs: the easy ones are
    // learned first, the hard ones late.
    const int hard = draws.below(256);
    // Shapes are mostly lighter than the background, but the harder the image the less so.
    const bool plain_sight = draws.below(256) >= hard;
    const Colour from = any_colour(draws, spec_.c, 0, plain_sight ? 130 : 255),
                 to = any_colour(draws, spec_.c, 0, plain_sight ? 130 : 255);
    paint_background(canvas, draws, from, to);
    draw_blobs(canvas, draws, draws.between(0, 1 + hard / 64), side4);

    const bool alone = parts.companion < 0;
    const int percent = alone ? draws.between(40 - hard / 14, 44) : draws.between(22, 30);
    Sprite main = make_sprite(draws, parts.shape, parts.texture, side4 * percent / 100, hard,
                              key.with("cells"));
    const int corner = draws.below(4);
    place(draws, main, alone ? -1 : corner);
    colour(draws, main, from, to, plain_sight);
    draw(canvas, main);
    if (!alone) {
      Sprite other = make_sprite(draws, parts.companion, parts.companion_texture,
                                 side4 * draws.between(15, 19) / 100, hard, key.with("more cells"));
      place(draws, other, 3 - corner);
      colour(draws, other, from, to, plain_sight);
      draw(canvas, other);
    }
    // A bar across a side of the shape, or a blob in front of it.
    if (draws.below(384) < hard) {
      Sprite bar = make_sprite(draws, 7, 0, main.radius4 * draws.between(50, 80) / 100, 255, {});
      bar.x4 = main.x4 + draws.between(-main.radius4, main.radius4) * 7 / 10;
      bar.y4 = main.y4 + draws.between(-main.radius4, main.radius4) * 7 / 10;
      bar.first = any_colour(draws, spec_.c);
      draw(canvas, bar);
    }
    if (draws.below(512) < hard) draw_blobs(canvas, draws, 1, side4);
    add_noise(pixels, key.with("noise"), 10 + hard / 5);
  }

 private:
  // Anywhere inside, or inside one quarter of the image.
  void place(Draws& draws, Sprite& sprite, int quarter) const {
    const auto along = [&](int extent, int half) {
      const int low = half <= 0 ? 0 : extent / 2,
                high = half < 0    ? extent
                       : half == 0 ? extent / 2
                                   : extent,
                margin = sprite.radius4 * 8 / 10;
      return high - low <= 2 * margin ? (low + high) / 2
                                      : draws.between(low + margin, high - margin);
    };
    sprite.x4 = along(4 * spec_.w, quarter < 0 ? -1 : quarter & 1);
    sprite.y4 = along(4 * spec_.h, quarter < 0 ? -1 : quarter >> 1);
  }

  void colour(Draws& draws, Sprite& sprite, const Colour& from, const Colour& to,
              bool light) const {
    sprite.first = contrasting(draws, {&from, &to}, 44, spec_.c, light ? 110 : 0, 255);
    sprite.second =
        contrasting(draws, {&from, &to, &sprite.first}, 44, spec_.c, light ? 110 : 0, 255);
  }

  SyntheticSpec spec_;
  std::int64_t size_;
  Key key_;
  std::vector<std::string> names_;
};

}  // namespace

std::vector<std::string> problems(const SyntheticSpec& spec) {
  std::vector<std::string> out;
  const auto range = [&](std::string_view what, std::int64_t value, std::int64_t low,
                         std::int64_t high) {
    if (value < low || value > high)
      out.push_back(fmt::format("{} is {}, expected {} to {}", what, value, low, high));
  };
  range("the height", spec.h, 4, max_synthetic_side);
  range("the width", spec.w, 4, max_synthetic_side);
  range("the number of channels", spec.c, 1, max_synthetic_channels);
  range("the number of classes", spec.classes, 2, max_synthetic_classes);
  range("the number of training images", spec.train, 1, 1'000'000'000);
  range("the number of test images", spec.test, 1, 1'000'000'000);
  return out;
}

std::unique_ptr<Dataset> synthetic(const SyntheticSpec& spec, Split split, std::uint64_t seed) {
  if (const auto wrong = problems(spec); !wrong.empty())
    throw Error(ErrorKind::usage, join(wrong, "; "), "synthetic data");
  return std::make_unique<Synthetic>(spec, split, seed);
}

}  // namespace tessera::data
