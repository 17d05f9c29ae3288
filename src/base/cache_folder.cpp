#include "base/cache_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <system_error>
#include <thread>

namespace tessera {

namespace fs = std::filesystem;

fs::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && cache[0] == '/') return fs::path(cache) / "tessera";
  const char* home = std::getenv("HOME");
  return home && home[0] == '/' ? fs::path(home) / ".cache" / "tessera" : fs::path();
}

CacheLock::CacheLock(const fs::path& file) {
  std::error_code error;
  if (file.empty()) return;
  fs::create_directories(file.parent_path(), error);
  descriptor_ = ::open((file.string() + ".lock").c_str(),
                       O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  for (int tries = 0; descriptor_ >= 0 && tries < 100 && !held_; ++tries) {
    held_ = ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
    if (!held_) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

CacheLock::~CacheLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace tessera
