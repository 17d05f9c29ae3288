// Archives of `tessera data get`: gzipped or plain tar, as they come and, because checksums stop
// nearly every mutant, also with the checksum of every header made right (which needs the plain
// form).
#include "data/archive.h"

#include "fuzz.h"

using namespace tessera;

namespace {

constexpr std::size_t block = 512;

void unpack(std::string_view bytes) {
  const std::filesystem::path archive = fuzz::scratch() / "set.tar.gz";
  fuzz::write_file(archive, bytes);
  fuzz::accepts(ErrorKind::data, archive.string(), [&] {
    data::unpack(archive, {{"set/one.bin", fuzz::scratch() / "one.bin", 4096},
                           {"set/names.txt", fuzz::scratch() / "names.txt", 100}});
    if (std::filesystem::file_size(fuzz::scratch() / "names.txt") > 100)
      fuzz::finding("a file is larger than allowed");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  std::string bytes(fuzz::as_text(input, size));
  unpack(bytes);
  if (bytes.starts_with("\x1f\x8b")) return 0;
  for (std::size_t at = 0; at + block <= bytes.size(); at += block) {
    if (bytes.compare(at + 257, 5, "ustar") != 0) continue;
    unsigned sum = 0;
    for (std::size_t i = 0; i < block; ++i)
      sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(bytes[at + i]);
    char digits[9];
    std::snprintf(digits, sizeof(digits), "%07o", sum);
    bytes.replace(at + 148, 8, digits, 8);
  }
  unpack(bytes);
  return 0;
}
