// Downloads that survive a bad line: continued where they broke off, checked against a known
// checksum before anybody uses them. Convention: what has arrived so far lies in FILE.part; FILE
// itself appears only when it is complete and its checksum right. Neither may be a link or another
// user's: the folder may be one that others write to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace tessera::data {

struct Fetch {
  std::string url;             // http or https
  std::filesystem::path file;  // where it goes
  std::string sha256;          // 64 hexadecimal digits; empty: md5 counts
  std::string md5 = {};        // 32 hexadecimal digits; asked only without sha256
  std::uint64_t max_bytes = 0;
  int attempts = 6;      // in a row without a byte of progress
  double pause_s = 1.0;  // before the second attempt, doubled each time
  int silence_s = 60;    // without a byte, after which a connection counts as lost
  // Bytes that are there, and in all (0: the server did not say); called now and then. May throw to
  // stop.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

// Bytes that came over the line (0: FILE was already there and right). Throws Error(data) when the
// server or the line fails for good (what has arrived is kept, and the same call goes on from
// there) and when the checksum is wrong; Error(disk) when it cannot be written.
std::uint64_t fetch(const Fetch& what);

enum class Digest : std::uint8_t { md5, sha256 };
std::string digest_of(const std::filesystem::path& file, Digest kind);

// Where a server may send us on to, for libcurl: what began with https stays encrypted.
const char* redirect_protocols(const std::string& url);

}  // namespace tessera::data
