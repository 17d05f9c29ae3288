#include "report/predictions.h"

#include <algorithm>

#include "report/html.h"

namespace tessera::report {

using nlohmann::ordered_json;

namespace {

std::uint32_t crc32_of(const std::string& bytes) {
  std::uint32_t crc = 0xffffffffu;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int k = 0; k < 8; ++k) crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
  }
  return ~crc;
}

std::string big_endian(std::uint32_t v) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(v >> shift & 0xff);
  return out;
}

std::string chunk(const std::string& kind, const std::string& data) {
  return big_endian(static_cast<std::uint32_t>(data.size())) + kind + data +
         big_endian(crc32_of(kind + data));
}

// A zlib stream of stored blocks: pictures are small, and no library is needed.
std::string stored(const std::string& data) {
  constexpr std::size_t longest_block = 65535;
  std::string out = "\x78\x01";
  for (std::size_t at = 0; at == 0 || at < data.size(); at += longest_block) {
    const std::size_t n = std::min(longest_block, data.size() - at);
    out += static_cast<char>(at + n >= data.size() ? 1 : 0);
    for (const std::size_t v : {n, ~n & 0xffff}) {
      out += static_cast<char>(v & 0xff);
      out += static_cast<char>(v >> 8 & 0xff);
    }
    out += data.substr(at, n);
  }
  std::uint32_t a = 1, b = 0;
  for (const char c : data) {
    a = (a + static_cast<unsigned char>(c)) % 65521;
    b = (b + a) % 65521;
  }
  return out + big_endian(b << 16 | a);
}

}  // namespace

ordered_json to_json(const Predictions& p) {
  ordered_json samples = ordered_json::array(), classes = ordered_json::array();
  for (const std::string& name : p.classes) classes.push_back(shorten(name, 200));
  for (const SamplePrediction& s : p.samples)
    samples.push_back({{"name", shorten(s.name, 400)},
                       {"label", s.label},
                       {"said", s.said},
                       {"probability", s.probability},
                       {"png", s.png}});
  return {{"classes", classes},
          {"images", p.images},
          {"correct", p.correct},
          {"confusion", p.confusion},
          {"samples", samples}};
}

std::string small_png(const std::uint8_t* pixels, int height, int width, int channels, int most) {
  const int by = std::max(1, (std::max(height, width) + most - 1) / most);
  const int h = height / by, w = width / by, shown = channels >= 3 ? 3 : 1;
  std::string rows;
  for (int y = 0; y < h; ++y) {
    rows += '\0';  // no filter
    for (int x = 0; x < w; ++x)
      for (int c = 0; c < shown; ++c) {
        int sum = 0;
        for (int dy = 0; dy < by; ++dy)
          for (int dx = 0; dx < by; ++dx)
            sum += pixels[(static_cast<std::size_t>(y * by + dy) * static_cast<std::size_t>(width) +
                           static_cast<std::size_t>(x * by + dx)) *
                              static_cast<std::size_t>(channels) +
                          static_cast<std::size_t>(c)];
        rows += static_cast<char>(sum / (by * by));
      }
  }
  const std::string head = big_endian(static_cast<std::uint32_t>(w)) +
                           big_endian(static_cast<std::uint32_t>(h)) + '\x08' +
                           (shown == 3 ? '\x02' : '\x00') + std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", head) + chunk("IDAT", stored(rows)) +
         chunk("IEND", "");
}

}  // namespace tessera::report
