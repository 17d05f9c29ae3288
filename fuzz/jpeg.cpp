// JPEG files, whole, shrunk on the way, and their middle alone; which of these follows from the bytes.
#include <numeric>

#include "data/decode.h"
#include "fuzz.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  static const data::Want wants[] = {{}, {8, 8, true}, {24, 16, false}, {224, 200, true}};
  const data::Want& want = wants[std::accumulate(input, input + size, std::size_t{0}) % 4];
  fuzz::accepts(ErrorKind::data, "picture.jpg", [&] {
    data::Image image;
    data::decode_image(fuzz::as_bytes(input, size), "picture.jpg", want, image, {1024, 1 << 18, 1 << 20});
    if (image.pixels.size() != static_cast<std::size_t>(image.h) * image.w * image.c) fuzz::finding("an image with too few pixels");
  });
  return 0;
}
