#include "data/encoders.h"

#include <spng.h>

#include <cstdio>
#include <cstdlib>

#include <jpeglib.h>

namespace tessera::test {

Bytes encode_png(const PngSpec& spec, const void* samples, std::size_t size) {
  spng_ctx* context = spng_ctx_new(SPNG_CTX_ENCODER);
  spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr header{};
  header.width = spec.w;
  header.height = spec.h;
  header.bit_depth = spec.bit_depth;
  header.color_type = spec.color_type;
  header.interlace_method = spec.interlaced;
  if (spng_set_ihdr(context, &header)) std::abort();
  if (!spec.palette.empty()) {
    spng_plte palette{};
    palette.n_entries = static_cast<std::uint32_t>(spec.palette.size());
    for (std::size_t i = 0; i < spec.palette.size(); ++i) {
      palette.entries[i].red = static_cast<std::uint8_t>(spec.palette[i] >> 16);
      palette.entries[i].green = static_cast<std::uint8_t>(spec.palette[i] >> 8);
      palette.entries[i].blue = static_cast<std::uint8_t>(spec.palette[i]);
    }
    if (spng_set_plte(context, &palette)) std::abort();
  }
  if (!spec.alphas.empty()) {
    spng_trns transparency{};
    transparency.n_type3_entries = static_cast<std::uint32_t>(spec.alphas.size());
    for (std::size_t i = 0; i < spec.alphas.size(); ++i)
      transparency.type3_alpha[i] = spec.alphas[i];
    if (spng_set_trns(context, &transparency)) std::abort();
  }
  if (spng_encode_image(context, samples, size, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE)) std::abort();
  int code = 0;
  std::size_t length = 0;
  void* png = spng_get_png_buffer(context, &length, &code);
  if (code) std::abort();
  const auto* begin = static_cast<const std::byte*>(png);
  Bytes out(begin, begin + length);
  std::free(png);
  spng_ctx_free(context);
  return out;
}

Bytes encode_jpeg(const data::Image& image, int quality, bool progressive, bool ycck) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &buffer, &size);
  info.image_width = static_cast<JDIMENSION>(image.w);
  info.image_height = static_cast<JDIMENSION>(image.h);
  info.input_components = image.c;
  info.in_color_space = image.c == 1 ? JCS_GRAYSCALE : image.c == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  if (ycck) jpeg_set_colorspace(&info, JCS_YCCK);
  jpeg_set_quality(&info, quality, TRUE);
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(image.at(static_cast<int>(info.next_scanline), 0));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* begin = reinterpret_cast<const std::byte*>(buffer);
  Bytes out(begin, begin + size);
  std::free(buffer);
  return out;
}

data::Image smooth_image(int h, int w, int c) {
  data::Image image(h, w, c);
  for (int y = 0; y < h; ++y)
    for (int x = 0; x < w; ++x)
      for (int k = 0; k < c; ++k)
        image.at(y, x)[k] =
            static_cast<std::uint8_t>(40 + 160 * (k % 2 ? x : y) / (k % 2 ? w : h) + 10 * k);
  return image;
}

}  // namespace tessera::test
