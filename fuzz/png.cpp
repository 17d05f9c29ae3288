// PNG files, as they come and, because checksums stop nearly every mutant, also with the checksum
// of every chunk made right.
#include <zlib.h>

#include "data/decode.h"
#include "fuzz.h"

using namespace tessera;

namespace {

void decode(std::span<const std::byte> bytes) {
  fuzz::accepts(ErrorKind::data, "picture.png", [&] {
    data::decode_image(bytes, "picture.png", {4096, 1 << 22, 1 << 20});
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  decode(fuzz::as_bytes(input, size));
  std::vector<std::uint8_t> repaired(input, input + size);
  const auto get = [&](std::size_t at) {
    return std::size_t{repaired[at]} << 24 | std::size_t{repaired[at + 1]} << 16 |
           std::size_t{repaired[at + 2]} << 8 | repaired[at + 3];
  };
  for (std::size_t at = 8; at + 12 <= size && get(at) <= size - at - 12;
       at += get(at) + 12) {  // length, name, content, checksum
    const std::size_t length = get(at);
    const auto sum =
        static_cast<std::uint32_t>(crc32(0, &repaired[at + 4], static_cast<uInt>(length + 4)));
    for (std::size_t k = 0; k < 4; ++k)
      repaired[at + 8 + length + k] = static_cast<std::uint8_t>(sum >> (24 - 8 * k));
  }
  decode(fuzz::as_bytes(repaired.data(), repaired.size()));
  return 0;
}
