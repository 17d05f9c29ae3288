// Functions that every writer shares: writing all bytes or saying why not, how much room there is,
// and flushing folders. Convention: failures are Error(disk) and name the path; a full disk also
// says how many bytes were needed and how many are free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

namespace tessera::files {

// Room for this process on the disk that holds the nearest existing folder of `path`; nothing when
// the system does not say.
std::optional<std::uint64_t> free_bytes(const std::filesystem::path& path);

// Error(disk) when `bytes` will not fit, before anything is written.
void require_room(const std::filesystem::path& path, std::uint64_t bytes);

// Throws the Error(disk) of a failed system call. `needed`: bytes of the whole write, 0 when not
// known.
[[noreturn]] void fail_disk(const std::filesystem::path& path, const char* verb, int problem,
                            std::uint64_t needed = 0);

// All of `bytes`, through short writes and interruptions.
void write_all(int descriptor, std::span<const std::byte> bytes, const std::filesystem::path& path,
               std::uint64_t needed = 0);

// The same at a place of a file, and all of what is there; a file that ends before it is a failure.
void write_all_at(int descriptor, std::span<const std::byte> bytes, std::int64_t place,
                  const std::filesystem::path& path);
void read_all_at(int descriptor, std::span<std::byte> bytes, std::int64_t place,
                 const std::filesystem::path& path);

// Flushes a file: its bytes then survive a crash of the machine. Error(disk) when that is not
// known.
void sync_file(int descriptor, const std::filesystem::path& path, std::uint64_t needed = 0);
void sync_file(const std::filesystem::path& path);
// The same of a rename or a new name in a folder. File systems that have no such call are trusted;
// every other failure is Error(disk).
void sync_folder(const std::filesystem::path& folder);

// For tests: while it lives, writes of this process fail with `problem` once so many bytes have
// been written, as on a disk that fills up.
class DiskFault {
 public:
  DiskFault(std::uint64_t bytes, int problem);
  ~DiskFault();
  DiskFault(const DiskFault&) = delete;
  DiskFault& operator=(const DiskFault&) = delete;
};

}  // namespace tessera::files
