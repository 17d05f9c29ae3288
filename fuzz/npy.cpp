// NumPy's arrays. Input: a byte that chooses the model's channels (0: any), then the file.
#include "data/arrays/npy.h"

#include <cmath>

#include "fuzz.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  if (size < 1) return 0;
  const int channels = input[0] % 6;
  fuzz::accepts(ErrorKind::data, "array.npy", [&] {
    data::Image image;
    data::decode_npy(fuzz::as_bytes(input + 1, size - 1), "array.npy", channels, image);
    if (image.numbers.size() !=
            static_cast<std::size_t>(image.h) * image.w * static_cast<std::size_t>(image.c) ||
        (channels > 0 && image.c != channels))
      fuzz::finding("numbers that are no image");
    for (const float value : image.numbers)
      if (!std::isfinite(value)) fuzz::finding("a number that is not finite was accepted");
  });
  return 0;
}
