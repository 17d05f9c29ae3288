// JPEG files, whole, shrunk on the way, and parts of them alone; which of these follows from the
// bytes.
#include <algorithm>
#include <numeric>

#include "data/decode.h"
#include "fuzz.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  const int sum = static_cast<int>(std::accumulate(input, input + size, std::size_t{0}) % 4096);
  // A part at some of 4 x 4 places, of some of 4 sizes, kept or shrunk.
  const data::Wants part = [&](int height, int width) {
    const auto side = [&](int all, int place) {
      const int begin = all * place / 4;
      return std::pair{begin, std::max(1, (all - begin) * (1 + sum / 16 % 4) / 4)};
    };
    const auto [top, h] = side(height, sum % 4);
    const auto [left, w] = side(width, sum / 4 % 4);
    return data::Want{{top, left, h, w}, h / (sum / 64 % 4 + 1), w / (sum / 64 % 4 + 1)};
  };
  fuzz::accepts(ErrorKind::data, "picture.jpg", [&] {
    data::Image image;
    data::decode_image(fuzz::as_bytes(input, size), "picture.jpg", sum % 5 ? part : data::Wants{},
                       image, {1024, 1 << 18, 1 << 20});
    if (image.pixels.size() != static_cast<std::size_t>(image.h) * image.w * image.c)
      fuzz::finding("an image with too few pixels");
  });
  return 0;
}
