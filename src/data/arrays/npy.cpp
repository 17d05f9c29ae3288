#include "data/arrays/npy.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "base/check.h"
#include "base/printable.h"

namespace tessera::data {
namespace {

constexpr std::string_view npy_magic = "\x93NUMPY";
constexpr std::size_t longest_npy_header = 65536;  // NumPy refuses 10,000 and more by itself
constexpr std::uint64_t most_npy_channels = 1024;

// The header is a Python dictionary of three keys. This reads what NumPy writes: one line, keys in
// single quotes, any order.
class NpyDictionary {
 public:
  NpyDictionary(std::string_view text, std::string_view name) : text_(text), name_(name) {
    expect('{');
    while (!take('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr")
        once(descr, quoted());
      else if (key == "fortran_order")
        once(fortran, boolean());
      else if (key == "shape")
        once(shape, tuple());
      else
        refuse(fmt::format("has the key '{}'; expected descr, fortran_order and shape",
                           printable(key.substr(0, 40))));
      if (take('}')) break;
      expect(',');
    }
    blanks();
    if (at_ != text_.size()) refuse("goes on after its end");
    if (!descr || !fortran || !shape) refuse("lacks one of descr, fortran_order and shape");
  }
  std::optional<std::string> descr;
  std::optional<bool> fortran;
  std::optional<std::vector<std::uint64_t>> shape;

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::data, "the header of the .npy file " + what, std::string(name_));
  }
  template <class T>
  void once(std::optional<T>& place, T value) {
    if (place) refuse("has a key twice");
    place = std::move(value);
  }
  void blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(char c) {
    blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) refuse(fmt::format("has no '{}' at its character {}", c, at_));
  }
  std::string quoted() {
    blanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    const std::size_t end =
        quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : std::string_view::npos;
    if (end == std::string_view::npos)
      refuse(fmt::format("has no quoted word at its character {} (arrays of records are not read)",
                         at_));
    std::string word(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return word;
  }
  bool boolean() {
    blanks();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}})
      if (text_.substr(at_).starts_with(word)) {
        at_ += std::strlen(word);
        return value;
      }
    refuse("has a fortran_order that is neither True nor False");
  }
  std::optional<std::uint64_t> whole() {  // nothing: there is none, or it has more than 64 bits
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    std::optional<std::uint64_t> out;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      if (out && *out > (most - digit) / 10) return std::nullopt;
      out = out.value_or(0) * 10 + digit;
    }
    return out;
  }
  std::vector<std::uint64_t> tuple() {
    expect('(');
    std::vector<std::uint64_t> out;
    while (!take(')')) {
      blanks();
      const std::optional<std::uint64_t> size = whole();
      if (!size || out.size() == 8) refuse("has a shape that is no list of sizes");
      out.push_back(*size);
      if (take(')')) break;
      expect(',');
    }
    return out;
  }

  std::string_view text_, name_;
  std::size_t at_ = 0;
};

void read_npy_element(const std::string& descr, std::string_view name, NpyHeader& out) {
  const std::string_view kind = descr.size() > 1 ? std::string_view(descr).substr(1) : descr;
  const char order = descr.empty() ? '\0' : descr[0];
  const bool known = order == '<' || order == '>' || order == '|' || order == '=';
  if (known && kind == "u1")
    out.element = NpyHeader::u8;
  else if (known && kind == "u2" && order != '|')
    out.element = NpyHeader::u16;
  else if (known && kind == "f4" && order != '|')
    out.element = NpyHeader::f32;
  else
    throw Error(ErrorKind::data,
                fmt::format("the array's elements are '{}'; expected u1, u2 or f4",
                            printable(descr.substr(0, 40))),
                std::string(name), "save it with array.astype(numpy.float32)");
  out.big_endian = order == '>';
}

void read_npy_shape(const std::vector<std::uint64_t>& shape, std::string_view name, int channels,
                    const DecodeLimits& limits, NpyHeader& out) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::data,
                fmt::format("the array has the shape [{}]; {}", fmt::join(shape, ", "), what),
                std::string(name));
  };
  if (shape.size() != 2 && shape.size() != 3)
    refuse("expected [height, width] or [height, width, channels]");
  const auto wanted = static_cast<std::uint64_t>(channels);
  out.channels_first =
      shape.size() == 3 && channels > 0 && shape[2] != wanted && shape[0] == wanted;
  const std::uint64_t h = shape[out.channels_first ? 1 : 0], w = shape[out.channels_first ? 2 : 1],
                      c = shape.size() == 2 ? 1 : shape[out.channels_first ? 0 : 2];
  if (c < 1 || c > most_npy_channels)
    refuse(fmt::format("expected 1 to {} channels", most_npy_channels));
  if (channels > 0 && c != wanted)
    refuse(fmt::format("the model reads {} channel{}", channels, channels == 1 ? "" : "s"));
  check_dimensions(h, w, name, limits);
  if (h * w * c > static_cast<std::uint64_t>(limits.max_pixels) * 4)
    refuse("that is more than an image may have");
  out.h = static_cast<int>(h);
  out.w = static_cast<int>(w);
  out.c = static_cast<int>(c);
}

float npy_number(const std::byte* at, const NpyHeader& header) {
  if (header.element == NpyHeader::u8)
    return static_cast<float>(std::to_integer<int>(at[0]) / 255.0);
  std::uint32_t bits = 0;
  const std::size_t n = header.bytes();
  for (std::size_t i = 0; i < n; ++i)
    bits |= std::to_integer<std::uint32_t>(at[i]) << (8 * (header.big_endian ? n - 1 - i : i));
  if (header.element == NpyHeader::u16) return static_cast<float>(bits / 65535.0);
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace

std::size_t NpyHeader::bytes() const { return element == u8 ? 1 : element == u16 ? 2 : 4; }

NpyHeader npy_header(std::span<const std::byte> bytes, std::string_view name, int channels,
                     const DecodeLimits& limits) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::data, what, std::string(name));
  };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(npy_magic))
    refuse("this is no .npy file: it does not begin with \\x93NUMPY");
  if (text.size() < 12) refuse("the .npy file is cut off");
  const int major = text[6];
  if (major < 1 || major > 3)
    refuse(fmt::format("the .npy file has the version {}; expected 1, 2 or 3", major));
  const std::size_t begin = major == 1 ? 10 : 12;
  std::size_t length = 0;
  for (std::size_t i = 0; i < begin - 8; ++i)
    length |= std::to_integer<std::size_t>(bytes[8 + i]) << (8 * i);
  if (length > longest_npy_header || length > text.size() - begin)
    refuse(
        fmt::format("the header of the .npy file has {} bytes; {} follow, and at most {} are read",
                    length, text.size() - begin, longest_npy_header));
  const NpyDictionary found(text.substr(begin, length), name);
  NpyHeader out;
  out.data = begin + length;
  out.fortran = *found.fortran;
  read_npy_element(*found.descr, name, out);
  read_npy_shape(*found.shape, name, channels, limits, out);
  const std::size_t needed = static_cast<std::size_t>(out.h) * out.w * out.c * out.bytes();
  if (text.size() - out.data != needed)
    refuse(fmt::format("an array of {} x {} x {} has {} bytes, the .npy file holds {}", out.h,
                       out.w, out.c, needed, text.size() - out.data));
  return out;
}

void decode_npy(std::span<const std::byte> bytes, std::string_view name, int channels, Image& out,
                const DecodeLimits& limits) {
  const NpyHeader header = npy_header(bytes, name, channels, limits);
  const auto h = static_cast<std::size_t>(header.h), w = static_cast<std::size_t>(header.w),
             c = static_cast<std::size_t>(header.c);
  // How far apart neighbours lie, by what is the outermost and the innermost dim of the file.
  std::size_t of_y = w * c, of_x = c, of_c = 1;
  if (header.channels_first) {
    of_c = h * w;
    of_y = w;
    of_x = 1;
  }
  if (header.fortran) {
    of_y = 1;
    of_x = h;
    of_c = h * w;
  }
  if (header.fortran && header.channels_first) {
    of_c = 1;
    of_y = c;
    of_x = c * h;
  }
  out.h = header.h;
  out.w = header.w;
  out.c = header.c;
  out.pixels.clear();
  out.numbers.resize(h * w * c);
  const std::byte* data = bytes.data() + header.data;
  std::size_t to = 0;
  for (std::size_t y = 0; y < h; ++y)
    for (std::size_t x = 0; x < w; ++x)
      for (std::size_t k = 0; k < c; ++k) {
        const float value =
            npy_number(data + (y * of_y + x * of_x + k * of_c) * header.bytes(), header);
        if (!std::isfinite(value))
          throw Error(
              ErrorKind::data,
              fmt::format("the number at row {}, column {}, channel {} is not finite", y, x, k),
              std::string(name));
        out.numbers[to++] = value;
      }
}

void decode_npy(const std::filesystem::path& path, int channels, Image& out,
                const DecodeLimits& limits) {
  thread_local std::vector<std::byte> bytes;
  read_image_file(path, bytes, limits);
  decode_npy(bytes, path.string(), channels, out, limits);
}

}  // namespace tessera::data
