#include "data/archive.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "base/check.h"
#include "files/atomic_file.h"

namespace tessera::data {
namespace {

constexpr std::size_t tar_block = 512;
constexpr std::uint64_t most_bytes =
    std::uint64_t{4} << 30;  // unpacked, all entries together: no bomb fills the disk or the day
constexpr int most_entries = 100'000;

// The fields of a ustar header that matter.
struct Entry {
  std::string name;
  std::uint64_t size = 0;
  char type = '0';
};

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path)
      : path_(path), file_(gzopen(path.c_str(), "rb"), &gzclose) {
    if (!file_)
      throw Error(ErrorKind::data, fmt::format("cannot open the archive: {}", std::strerror(errno)),
                  path.string());
    gzbuffer(file_.get(), 1 << 18);
  }

  // The next header; nothing at the end mark (a block of zeros) or at the end of the file.
  std::optional<Entry> next() {
    std::array<char, tar_block> header{};
    if (!read(header.data(), tar_block, true) ||
        std::all_of(header.begin(), header.end(), [](char c) { return c == 0; }))
      return {};
    if (++entries_ > most_entries) damaged("too many entries");
    unsigned sum = 0;
    for (std::size_t i = 0; i < tar_block; ++i)
      sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(header[i]);
    if (number({&header[148], 8}) != sum) damaged("the checksum of an entry is wrong");
    Entry entry;
    entry.name = text({&header[0], 100});
    if (text({&header[257], 5}) == "ustar" && header[345] != 0)
      entry.name = text({&header[345], 155}) + "/" + entry.name;
    entry.size = number({&header[124], 12});
    entry.type = header[156] == 0 ? '0' : header[156];
    return entry;
  }

  // The entry's bytes to `sink`, up to the next header.
  template <class Sink>
  void content(const Entry& entry, Sink&& sink) {
    std::vector<char> buffer(1 << 16);
    for (std::uint64_t left = (entry.size + tar_block - 1) / tar_block * tar_block,
                       wanted = entry.size;
         left > 0;) {
      const auto now = static_cast<std::size_t>(std::min<std::uint64_t>(left, buffer.size()));
      read(buffer.data(), now, false);
      const auto use = static_cast<std::size_t>(std::min<std::uint64_t>(now, wanted));
      sink(std::as_bytes(std::span(buffer).first(use)));
      left -= now;
      wanted -= use;
    }
  }

  [[noreturn]] void damaged(const std::string& what) const {
    throw Error(ErrorKind::data, "damaged or unexpected archive: " + what, path_.string(),
                "remove it and fetch it again");
  }

 private:
  bool read(char* to, std::size_t size, bool may_end) {
    total_ += size;
    if (total_ > most_bytes) damaged(fmt::format("it unpacks to more than {} bytes", most_bytes));
    const int got = gzread(file_.get(), to, static_cast<unsigned>(size));
    if (got == static_cast<int>(size)) return true;
    int code = 0;
    const char* said = gzerror(file_.get(), &code);
    if (got == 0 && may_end && (code == Z_OK || code == Z_STREAM_END)) return false;
    damaged(code == Z_OK || code == Z_STREAM_END ? "it is cut off" : said);
  }

  static std::string text(std::string_view field) {
    return std::string(field.substr(0, field.find('\0')));
  }

  // Octal digits, padded with spaces or zero bytes.
  std::uint64_t number(std::string_view field) const {
    std::uint64_t value = 0;
    for (const char c : field) {
      if (c == ' ' || c == 0) continue;
      if (c < '0' || c > '7') damaged("a number that is not octal");
      value = value * 8 + static_cast<std::uint64_t>(c - '0');
    }
    return value;
  }

  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, decltype(&gzclose)> file_;
  std::uint64_t total_ = 0;
  int entries_ = 0;
};

}  // namespace

void unpack(const std::filesystem::path& archive, const std::vector<Expected>& expected) {
  Reader reader(archive);
  std::set<std::string> done;
  while (const std::optional<Entry> entry = reader.next()) {
    std::string_view name = entry->name;
    while (name.starts_with("./")) name.remove_prefix(2);
    const auto it = std::find_if(expected.begin(), expected.end(),
                                 [&](const Expected& e) { return e.name == name; });
    if (it == expected.end()) {
      reader.content(*entry, [](auto) {});
      continue;
    }
    if (entry->type != '0') reader.damaged(fmt::format("{} is not a regular file", it->name));
    if (entry->size > it->max_bytes)
      reader.damaged(fmt::format("{} has {} bytes, at most {} are expected", it->name, entry->size,
                                 it->max_bytes));
    if (!done.insert(it->name).second) reader.damaged(it->name + " comes twice");
    files::AtomicFile out(it->to);
    reader.content(*entry, [&](std::span<const std::byte> bytes) { out.write(bytes); });
    out.commit();
  }
  std::vector<std::string> missing;
  for (const Expected& e : expected)
    if (!done.contains(e.name)) missing.push_back(e.name);
  if (!missing.empty())
    reader.damaged(join(missing, ", ") + (missing.size() == 1 ? " is" : " are") + " not in it");
}

}  // namespace tessera::data
