// Buffers of an executor that rest in a file: by name, read and written at once, or by a thread of
// their own while plans run. Convention: reads and writes that are under way at the same time never
// have bytes in common; a plan is proved to keep to that (plan/verify.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "comm/comm.h"

namespace tessera::exec {

class AwayFile {
 public:
  // A file is made in `folder` once a buffer needs one.
  explicit AwayFile(std::string folder);
  ~AwayFile();
  AwayFile(const AwayFile&) = delete;
  AwayFile& operator=(const AwayFile&) = delete;

  bool has(std::string_view name) const { return places_.contains(name); }
  std::int64_t bytes_of(std::string_view name) const;
  void add(const std::string& name,
           std::int64_t bytes);  // zeroed; Error(disk) when there is no room
  std::int64_t bytes() const;
  void write(std::string_view name, std::int64_t offset, std::span<const std::byte> bytes) const;
  void read(std::string_view name, std::int64_t offset, std::span<std::byte> bytes) const;
  // The same, under way. Error(disk) comes out of done() or wait().
  comm::Pending start_write(std::string_view name, std::int64_t offset,
                            std::span<const std::byte> bytes);
  comm::Pending start_read(std::string_view name, std::int64_t offset, std::span<std::byte> bytes);

 private:
  struct Place {
    std::int64_t begin = 0, bytes = 0;
  };
  class Worker;
  struct File;
  std::int64_t place_of(std::string_view name, std::int64_t offset, std::size_t bytes) const;

  std::string folder_;
  std::map<std::string, Place, std::less<>> places_;
  std::unique_ptr<File> file_;
};

}  // namespace tessera::exec
