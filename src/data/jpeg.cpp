// JPEG through libjpeg-turbo. Convention: the library reports errors by a callback that must not
// return; it jumps back over C frames only, so the two functions that can be jumped into hold
// nothing with a destructor.
#include <fmt/format.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs FILE

#include <jpeglib.h>

#include <jerror.h>  // JWRN_*

#include "base/check.h"
#include "data/decode.h"

namespace tessera::data {
namespace {

// n/8 that are worth it: from 5/8 to 7/8, for which the library has no vector code, it is no faster
// than at full size.
constexpr unsigned scales[] = {1, 2, 3, 4};

constexpr int margin = 2;  // pixels

struct Decoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX] = "";
  bool skip_end = false;  // a member: an argument might not survive the jump

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

// The library repairs damage with grey and only warns. Wrong pixels are refused here; odd but
// harmless markers are let through.
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

// The pixels of `part` of the (shrunk) picture into their places in `image`. Columns outside are
// not even computed, and rows only decoded, but for a margin that keeps the smoothing of colours at
// the edges the same. With `skip_end` not even what follows the part is decoded.
bool read_pixels(Decoder& decoder, const Region& part, Image& image) {
  if (setjmp(decoder.escape)) return false;
  jpeg_start_decompress(&decoder.info);
  const JDIMENSION height = decoder.info.output_height, width = decoder.info.output_width;
  // Our sum agrees with the library's; were it ever otherwise, the pixels would not fit.
  if (static_cast<int>(width) != image.w || static_cast<int>(height) != image.h ||
      decoder.info.output_components != image.c) {
    std::snprintf(decoder.message, sizeof(decoder.message), "unexpected size %u x %u", width,
                  height);
    return false;
  }
  auto x = static_cast<JDIMENSION>(std::max(0, part.left - margin));
  auto columns = std::min(width, static_cast<JDIMENSION>(part.left + part.w + margin)) - x;
  if (columns < width)
    jpeg_crop_scanline(&decoder.info, &x, &columns);  // moves x to the left as it needs
  const auto top = static_cast<JDIMENSION>(std::max(0, part.top - margin)),
             bottom = static_cast<JDIMENSION>(part.top + part.h);
  if (top > 0) jpeg_skip_scanlines(&decoder.info, top);
  while (decoder.info.output_scanline < (decoder.skip_end ? bottom : height)) {
    JSAMPROW to = image.at(static_cast<int>(decoder.info.output_scanline), static_cast<int>(x));
    jpeg_read_scanlines(&decoder.info, &to, 1);
  }
  if (decoder.skip_end)
    jpeg_abort_decompress(&decoder.info);
  else
    jpeg_finish_decompress(&decoder.info);
  return true;
}

// Adobe writes CMYK inverted (255 is no ink), others as the standard has it.
void cmyk_to_rgb(const Image& cmyk, bool inverted, Image& rgb) {
  rgb.reshape(cmyk.h, cmyk.w, 3);
  const int flip = inverted ? 0 : 255;
  for (std::size_t i = 0; i < rgb.pixels.size() / 3; ++i)
    for (std::size_t k = 0; k < 3; ++k)
      rgb.pixels[3 * i + k] = static_cast<std::uint8_t>(
          ((cmyk.pixels[4 * i + k] ^ flip) * (cmyk.pixels[4 * i + 3] ^ flip) + 127) / 255);
}

// The smallest n of n/8 that leaves the wanted part as large as wanted.
unsigned smallest_scale(const Want& want) {
  if (want.height <= 0 || want.width <= 0) return 8;
  const auto leaves = [](unsigned n, int side, int wanted) {
    return static_cast<std::int64_t>(side) * n >= std::int64_t{8} * wanted;
  };
  for (const unsigned n : scales)
    if (leaves(n, want.part.h, want.height) && leaves(n, want.part.w, want.width)) return n;
  return 8;
}

// Where two pixels or more become one, their errors are averaged away with them: those of the
// library's faster transform do not show.
bool may_be_fast(const Want& want) {
  const auto area = [](int height, int width) { return static_cast<std::int64_t>(height) * width; };
  return want.height > 0 && want.width > 0 &&
         area(want.part.h, want.part.w) >= 2 * area(want.height, want.width);
}

// A file that was cut off has lost this mark with the rest.
bool ends_with_mark(std::span<const std::byte> bytes) {
  return bytes.size() > 2 && bytes[bytes.size() - 2] == std::byte{0xff} &&
         bytes.back() == std::byte{JPEG_EOI};
}

Want wanted(const Wants& wants, int height, int width) {
  if (!wants) return {{0, 0, height, width}};
  const Want want = wants(height, width);
  const Region& part = want.part;
  CHECK(part.top >= 0 && part.left >= 0 && part.h > 0 && part.w > 0 &&
            part.top + part.h <= height && part.left + part.w <= width,
        fmt::format("part {} x {} at {}, {} of a picture of {} x {}", part.h, part.w, part.top,
                    part.left, height, width));
  return want;
}

}  // namespace

void decode_jpeg(std::span<const std::byte> bytes, std::string_view name, const Wants& wants,
                 const DecodeLimits& limits, Image& out) {
  Decoder decoder;
  const auto damaged = [&] {
    return Error(ErrorKind::data, fmt::format("damaged JPEG: {}", decoder.message),
                 std::string(name), "replace or remove the file");
  };
  if (!read_header(decoder, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()))
    throw damaged();
  const std::uint64_t height = decoder.info.image_height, width = decoder.info.image_width;
  check_dimensions(height, width, name, limits);
  const int channels = decoder.info.num_components;
  if (channels != 1 && channels != 3 && channels != 4)
    throw Error(ErrorKind::data,
                fmt::format("a JPEG of {} components; 1, 3 and 4 are read", channels),
                std::string(name));
  decoder.info.out_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  const Want want = wanted(wants, static_cast<int>(height), static_cast<int>(width));
  decoder.info.scale_num = smallest_scale(want);
  decoder.info.scale_denom = 8;
  if (decoder.info.scale_num == 8 && may_be_fast(want)) decoder.info.dct_method = JDCT_IFAST;
  const int scaled_h = static_cast<int>((height * decoder.info.scale_num + 7) / 8),
            scaled_w = static_cast<int>((width * decoder.info.scale_num + 7) / 8);
  const Region part =
      decoder.info.scale_num == 8 ? want.part : wanted(wants, scaled_h, scaled_w).part;
  thread_local Image cmyk;
  Image& image = channels == 4 ? cmyk : out;
  image.reshape(scaled_h, scaled_w, channels);
  // The lines below the part are decoded only where a file that was cut off could not be told
  // otherwise.
  decoder.skip_end = part.top + part.h < scaled_h && ends_with_mark(bytes);
  if (!read_pixels(decoder, part, image)) throw damaged();
  if (channels == 4) cmyk_to_rgb(image, decoder.info.saw_Adobe_marker, out);
}

}  // namespace tessera::data
