#include "report/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstring>

#include "base/check.h"
#include "base/process.h"

namespace tessera::report {
namespace {

// Protobuf wire format: a key is (field << 3 | type); varints carry 7 bits a byte, lengths precede
// bytes, floats are little-endian.
void varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
void key(std::string& out, int field, int type) {
  varint(out, static_cast<std::uint64_t>(field << 3 | type));
}
void integer(std::string& out, int field, std::int64_t value) {
  key(out, field, 0);
  varint(out, static_cast<std::uint64_t>(value));
}
void bytes(std::string& out, int field, std::string_view value) {
  key(out, field, 2);
  varint(out, value.size());
  out += value;
}
template <class T>
void fixed(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out.append(raw, sizeof(T));
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Event { 1: wall_time double, 2: step int64, 3: file_version string, 5: summary, 7: session_log }
std::string event(std::int64_t step) {
  std::string out;
  key(out, 1, 1);
  fixed(out, wall_time());
  if (step != 0) integer(out, 2, step);
  return out;
}

std::uint32_t masked(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

}  // namespace

std::uint32_t crc32c(std::string_view text) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> t{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      t[i] = i;
      for (int bit = 0; bit < 8; ++bit)
        t[i] = (t[i] >> 1) ^ (t[i] & 1 ? 0x82f63b78u : 0u);  // Castagnoli, reversed
    }
    return t;
  }();
  std::uint32_t crc = ~0u;
  for (const char c : text) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

std::string tf_record(std::string_view payload) {
  std::string length, out;
  fixed(length, static_cast<std::uint64_t>(payload.size()));
  out = length;
  fixed(out, masked(crc32c(length)));
  out += payload;
  fixed(out, masked(crc32c(payload)));
  return out;
}

EventFile::EventFile(const std::string& folder, std::int64_t first_step) {
  path_ = fmt::format("{}/events.out.tfevents.{:010}.{}.{}", folder,
                      static_cast<std::int64_t>(wall_time()), host_name(), ::getpid());
  file_.open(path_, std::ios::binary | std::ios::app);
  std::string opening = event(0);
  bytes(opening, 3, "brain.Event:2");
  record(opening);
  if (first_step > 1) {  // SessionLog { 1: status START }: steps from here on are written anew
    std::string restart = event(first_step), log;
    integer(log, 1, 1);
    bytes(restart, 7, log);
    record(restart);
  }
}

// Summary { 1: repeated Value { 1: tag string, 2: simple_value float } }
void EventFile::scalars(std::int64_t step,
                        const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, value] : values) {
    std::string entry;
    bytes(entry, 1, tag);
    key(entry, 2, 5);
    fixed(entry, static_cast<float>(value));
    bytes(summary, 1, entry);
  }
  std::string message = event(step);
  bytes(message, 5, summary);
  record(message);
}

void EventFile::record(const std::string& payload) {
  const std::string framed = tf_record(payload);
  if (!file_.write(framed.data(), static_cast<std::streamsize>(framed.size())).flush())
    throw Error(ErrorKind::disk, "cannot write the events", path_,
                "free some space on the disk, or choose a folder that can be written");
}

}  // namespace tessera::report
