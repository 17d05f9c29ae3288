// A folder of the user's for measurements that a machine needs once: each is a file with a lock
// beside it.
#pragma once

#include <filesystem>

namespace tessera {

// $XDG_CACHE_HOME/tessera or ~/.cache/tessera; empty: neither is set.
std::filesystem::path cache_folder();

// The lock beside a file of that folder, which is made where it is missing. Waiting ends after 5 s:
// a lock is no reason to hang.
class CacheLock {
 public:
  explicit CacheLock(const std::filesystem::path& file);  // empty: none
  ~CacheLock();
  CacheLock(const CacheLock&) = delete;
  CacheLock& operator=(const CacheLock&) = delete;
  bool held() const { return held_; }

 private:
  int descriptor_ = -1;
  bool held_ = false;
};

}  // namespace tessera
