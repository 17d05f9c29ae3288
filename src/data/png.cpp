// PNG through libspng. Convention: every checksum is verified and the file is read to its end, so a
// cut-off or altered file never passes.
#include <fmt/format.h>
#include <spng.h>

#include <cstdlib>
#include <fstream>
#include <memory>

#include "base/check.h"
#include "data/decode.h"

namespace tessera::data {
namespace {

using Context = std::unique_ptr<spng_ctx, decltype(&spng_ctx_free)>;

// The widest compression that deflate can reach is 1032:1; a file that promises more pixels than
// that is a lie told to make us allocate.
constexpr std::uint64_t max_inflation = 1040;

std::uint8_t to_8_bits(std::uint16_t value) {
  return static_cast<std::uint8_t>((value * 255u + 32767u) / 65535u);
}

}  // namespace

void decode_png(std::span<const std::byte> bytes, std::string_view name, const DecodeLimits& limits,
                Image& image) {
  const auto check = [&](int code, const char* what) {
    if (code != 0)
      throw Error(ErrorKind::data, fmt::format("damaged PNG: {}: {}", what, spng_strerror(code)),
                  std::string(name), "replace or remove the file");
  };
  const Context context(spng_ctx_new(0), &spng_ctx_free);
  if (!context) throw Error(ErrorKind::memory, "no memory to decode", std::string(name));
  check(spng_set_chunk_limits(context.get(), 16 << 20, 64 << 20), "limits");
  check(spng_set_png_buffer(context.get(), bytes.data(), bytes.size()), "input");
  spng_ihdr header{};
  check(spng_get_ihdr(context.get(), &header), "header");
  check_dimensions(header.height, header.width, name, limits);

  const bool palette = header.color_type == SPNG_COLOR_TYPE_INDEXED;
  spng_trns transparency{};
  const bool clear_palette = palette && spng_get_trns(context.get(), &transparency) == 0;
  const int channels = palette                                          ? (clear_palette ? 4 : 3)
                       : header.color_type == SPNG_COLOR_TYPE_GRAYSCALE ? 1
                       : header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA ? 2
                       : header.color_type == SPNG_COLOR_TYPE_TRUECOLOR       ? 3
                                                                              : 4;
  const std::uint64_t bits = static_cast<std::uint64_t>(palette ? 1 : channels) * header.bit_depth;
  if ((header.width * bits + 7) / 8 * header.height / max_inflation > bytes.size())
    throw Error(ErrorKind::data,
                fmt::format("damaged PNG: {} bytes cannot hold {} x {} pixels", bytes.size(),
                            header.width, header.height),
                std::string(name));

  // Grey below 8 bits and palettes need expanding; everything else arrives as stored (16 bits in
  // host order).
  const int format = clear_palette          ? SPNG_FMT_RGBA8
                     : palette              ? SPNG_FMT_RGB8
                     : header.bit_depth < 8 ? SPNG_FMT_G8
                                            : SPNG_FMT_PNG;
  image.reshape(static_cast<int>(header.height), static_cast<int>(header.width), channels);
  const std::size_t sample_bytes = header.bit_depth == 16 ? 2 : 1;
  std::size_t size = 0;
  check(spng_decoded_image_size(context.get(), format, &size), "size");
  CHECK(size == image.pixels.size() * sample_bytes,
        fmt::format("{}: the decoder wants {} bytes", name, size));
  const int flags = clear_palette ? SPNG_DECODE_TRNS : 0;
  if (sample_bytes == 1) {
    check(spng_decode_image(context.get(), image.pixels.data(), size, format, flags), "pixels");
  } else {
    std::vector<std::uint16_t> wide(image.pixels.size());
    check(spng_decode_image(context.get(), wide.data(), size, format, flags), "pixels");
    for (std::size_t i = 0; i < wide.size(); ++i) image.pixels[i] = to_8_bits(wide[i]);
  }
  check(spng_decode_chunks(context.get()), "end");
}

void write_png(const std::filesystem::path& path, const Image& image) {
  CHECK(image.c >= 1 && image.c <= 4, fmt::format("{} channels in a PNG", image.c));
  constexpr std::uint8_t types[] = {SPNG_COLOR_TYPE_GRAYSCALE, SPNG_COLOR_TYPE_GRAYSCALE_ALPHA,
                                    SPNG_COLOR_TYPE_TRUECOLOR, SPNG_COLOR_TYPE_TRUECOLOR_ALPHA};
  const Context context(spng_ctx_new(SPNG_CTX_ENCODER), &spng_ctx_free);
  if (!context) throw Error(ErrorKind::memory, "no memory to encode", path.string());
  spng_ihdr header{};
  header.width = static_cast<std::uint32_t>(image.w);
  header.height = static_cast<std::uint32_t>(image.h);
  header.bit_depth = 8;
  header.color_type = types[image.c - 1];
  int code = spng_set_option(context.get(), SPNG_ENCODE_TO_BUFFER, 1);
  if (code == 0) code = spng_set_ihdr(context.get(), &header);
  if (code == 0)
    code = spng_encode_image(context.get(), image.pixels.data(), image.pixels.size(), SPNG_FMT_PNG,
                             SPNG_ENCODE_FINALIZE);
  std::size_t size = 0;
  const std::unique_ptr<void, decltype(&std::free)> png(
      code == 0 ? spng_get_png_buffer(context.get(), &size, &code) : nullptr, &std::free);
  CHECK(code == 0 && png, fmt::format("{}: PNG encoder: {}", path.string(), spng_strerror(code)));

  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(static_cast<const char*>(png.get()), static_cast<std::streamsize>(size));
  file.close();
  if (!file) throw Error(ErrorKind::disk, "cannot write the image", path.string());
}

}  // namespace tessera::data
