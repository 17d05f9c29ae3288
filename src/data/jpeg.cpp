// JPEG through libjpeg-turbo. Convention: the library reports errors by a callback that must not return; it jumps back over C frames only,
// so the two functions that can be jumped into hold nothing with a destructor.
#include <fmt/format.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs FILE

#include <jpeglib.h>

#include <jerror.h>  // JWRN_*

#include <cstring>
#include <vector>

#include "base/check.h"
#include "data/decode.h"

namespace tessera::data {
namespace {

// n/8 that are worth it: from 5/8 to 7/8, for which the library has no vector code, it is no faster than at full size.
constexpr unsigned scales[] = {1, 2, 3, 4};

constexpr int margin = 2;  // columns

struct Decoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX] = "";

  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() { jpeg_destroy_decompress(&info); }
};

[[noreturn]] void escape_with_error(j_common_ptr info) {
  auto* decoder = static_cast<Decoder*>(info->client_data);
  info->err->format_message(info, decoder->message);
  std::longjmp(decoder->escape, 1);
}

// The library repairs damage with grey and only warns. Wrong pixels are refused here; odd but harmless markers are let through.
void judge_warning(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC:
    case JWRN_BOGUS_PROGRESSION:
      escape_with_error(info);
    default:
      ++info->err->num_warnings;
  }
}

// A small progressive file can ask for thousands of passes over a large image.
void limit_scans(j_common_ptr info) {
  if (!info->is_decompressor) return;
  auto* decoder = static_cast<Decoder*>(info->client_data);
  if (decoder->info.input_scan_number <= 200) return;
  std::snprintf(decoder->message, sizeof(decoder->message), "more than 200 progressive scans");
  std::longjmp(decoder->escape, 1);
}

bool read_header(Decoder& decoder, const unsigned char* bytes, unsigned long size) {
  decoder.info.err = jpeg_std_error(&decoder.errors);
  decoder.errors.error_exit = escape_with_error;
  decoder.errors.emit_message = judge_warning;
  decoder.errors.output_message = [](j_common_ptr) {};
  decoder.info.client_data = &decoder;
  if (setjmp(decoder.escape)) return false;
  jpeg_create_decompress(&decoder.info);
  decoder.progress.progress_monitor = limit_scans;
  decoder.info.progress = &decoder.progress;
  jpeg_mem_src(&decoder.info, bytes, size);
  jpeg_read_header(&decoder.info, TRUE);
  return true;
}

// The part `box` of the (shrunk) picture into `image`; `row` holds a whole row of it. Columns outside are not even computed, but for a
// margin that keeps the smoothing of colours at the edges the same.
bool read_pixels(Decoder& decoder, int height, int width, const Box& box, unsigned char* row, Image& image) {
  if (setjmp(decoder.escape)) return false;
  jpeg_start_decompress(&decoder.info);
  // Our sum agrees with the library's; were it ever otherwise, the pixels would not fit.
  if (static_cast<int>(decoder.info.output_width) != width || static_cast<int>(decoder.info.output_height) != height ||
      decoder.info.output_components != image.c) {
    std::snprintf(decoder.message, sizeof(decoder.message), "unexpected size %u x %u", decoder.info.output_width,
                  decoder.info.output_height);
    return false;
  }
  const auto c = static_cast<std::size_t>(image.c);
  auto x = static_cast<JDIMENSION>(std::max(0, box.left - margin));
  auto columns = static_cast<JDIMENSION>(std::min(width, box.left + box.w + margin)) - x;
  if (columns < decoder.info.output_width) jpeg_crop_scanline(&decoder.info, &x, &columns);  // moves x to the left as it needs
  const std::size_t skipped = (static_cast<std::size_t>(box.left) - x) * c;
  const bool direct = columns == static_cast<JDIMENSION>(box.w);
  while (decoder.info.output_scanline < decoder.info.output_height) {
    const int y = static_cast<int>(decoder.info.output_scanline) - box.top;
    const bool inside = y >= 0 && y < box.h;
    JSAMPROW to = inside && direct ? image.at(y, 0) : row;
    jpeg_read_scanlines(&decoder.info, &to, 1);
    if (inside && !direct) std::memcpy(image.at(y, 0), row + skipped, static_cast<std::size_t>(box.w) * c);
  }
  jpeg_finish_decompress(&decoder.info);
  return true;
}

// Adobe writes CMYK inverted (255 is no ink), others as the standard has it.
void cmyk_to_rgb(const Image& cmyk, bool inverted, Image& rgb) {
  rgb.reshape(cmyk.h, cmyk.w, 3);
  const int flip = inverted ? 0 : 255;
  for (std::size_t i = 0; i < rgb.pixels.size() / 3; ++i)
    for (std::size_t k = 0; k < 3; ++k)
      rgb.pixels[3 * i + k] = static_cast<std::uint8_t>(((cmyk.pixels[4 * i + k] ^ flip) * (cmyk.pixels[4 * i + 3] ^ flip) + 127) / 255);
}

// The smallest n of n/8 whose sides (rounded up, as the library does) are still as large as wanted.
unsigned smallest_scale(std::uint64_t height, std::uint64_t width, const Want& want) {
  if (want.height <= 0 || want.width <= 0) return 8;
  for (const unsigned n : scales)
    if ((height * n + 7) / 8 >= static_cast<std::uint64_t>(want.height) && (width * n + 7) / 8 >= static_cast<std::uint64_t>(want.width))
      return n;
  return 8;
}

}  // namespace

void decode_jpeg(std::span<const std::byte> bytes, std::string_view name, const Want& want, const DecodeLimits& limits, Image& out) {
  Decoder decoder;
  const auto damaged = [&] {
    return Error(ErrorKind::data, fmt::format("damaged JPEG: {}", decoder.message), std::string(name), "replace or remove the file");
  };
  if (!read_header(decoder, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size())) throw damaged();
  const std::uint64_t height = decoder.info.image_height, width = decoder.info.image_width;
  check_dimensions(height, width, name, limits);
  const int channels = decoder.info.num_components;
  if (channels != 1 && channels != 3 && channels != 4)
    throw Error(ErrorKind::data, fmt::format("a JPEG of {} components; 1, 3 and 4 are read", channels), std::string(name));
  decoder.info.out_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  decoder.info.scale_num = smallest_scale(height, width, want);
  decoder.info.scale_denom = 8;
  const int scaled_h = static_cast<int>((height * decoder.info.scale_num + 7) / 8),
            scaled_w = static_cast<int>((width * decoder.info.scale_num + 7) / 8);
  const bool part = want.center && want.height > 0 && want.width > 0;
  const Box box = part ? center_box(scaled_h, scaled_w, want.height, want.width) : Box{0, 0, scaled_h, scaled_w};
  // What will be shrunk by a third or more has its pixels averaged, and with them the errors of the faster transform.
  if (part && 2 * box.h >= 3 * want.height && 2 * box.w >= 3 * want.width) decoder.info.dct_method = JDCT_IFAST;
  thread_local Image cmyk;
  thread_local std::vector<unsigned char> row;
  row.resize(static_cast<std::size_t>(scaled_w) * channels);
  Image& image = channels == 4 ? cmyk : out;
  image.reshape(box.h, box.w, channels);
  if (!read_pixels(decoder, scaled_h, scaled_w, box, row.data(), image)) throw damaged();
  if (channels == 4) cmyk_to_rgb(image, decoder.info.saw_Adobe_marker, out);
}

}  // namespace tessera::data
