// The lock beside a file of the user's cache: of several processes one measures, and the others
// find what it wrote.
#include "base/cache_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

namespace tessera::cache_folder_test {
namespace {

namespace fs = std::filesystem;

// A process that has the lock writes its file late; another one that comes meanwhile finds it.
TEST(CacheLock, AnotherProcessWaitsForIt) {
  const fs::path folder =
      fs::temp_directory_path() / ("tessera_cache_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const fs::path file = folder / "peak.json";
  std::array<int, 2> locked{};
  ASSERT_EQ(::pipe(locked.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const CacheLock lock(file);
    const char held = lock.held() ? 'y' : 'n';
    (void)!::write(locked[1], &held, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::ofstream(file) << "measured";
    ::_exit(0);
  }
  char held = 0;
  ASSERT_EQ(::read(locked[0], &held, 1), 1);
  EXPECT_EQ(held, 'y');
  std::string found;
  {
    const CacheLock lock(file);
    EXPECT_TRUE(lock.held());
    std::ifstream(file) >> found;
  }
  EXPECT_EQ(found, "measured");
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  for (const int end : locked) ::close(end);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tessera::cache_folder_test
