// A disk that is slow or broken, for tests: stands before the C library's fsync, opendir and
// fdopendir, preloaded (LD_PRELOAD) or linked into a test program. TESSERA_DISK_FAULT="CALL PATH
// WHAT [times=N] [rank=R]": calls to CALL (fsync or opendir) on paths that contain PATH
// ("/ckpt$": that end in it) fail with errno=NUMBER or take slow=SECONDS longer; the first N of
// them, in rank R of an MPI job alone.
#include <dirent.h>
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <sstream>
#include <string>

namespace {

struct Fault {
  std::string call, path;
  int problem = 0;
  double seconds = 0;
  long times = -1;
  std::string rank;
};

Fault asked() {
  Fault out;
  const char* text = std::getenv("TESSERA_DISK_FAULT");
  std::istringstream words(text ? text : "");
  words >> out.call >> out.path;
  for (std::string word; words >> word;) {
    const std::string key = word.substr(0, word.find('=')), value = word.substr(word.find('=') + 1);
    if (key == "errno") out.problem = std::stoi(value);
    if (key == "slow") out.seconds = std::stod(value);
    if (key == "times") out.times = std::stol(value);
    if (key == "rank") out.rank = value;
  }
  return out;
}

bool fits(const std::string& path, std::string part) {
  if (!part.ends_with('$')) return path.find(part) != path.npos;
  part.pop_back();
  return path.ends_with(part);
}

std::string path_of(int descriptor) {
  char path[4096];
  const ssize_t length =
      ::readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), path, sizeof(path));
  return length < 0 ? "" : std::string(path, static_cast<std::size_t>(length));
}

// 0: go on.
int fault_of(const char* call, const std::string& path) {
  const Fault fault = asked();
  if (fault.call != call || !fits(path, fault.path)) return 0;
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (!fault.rank.empty() && fault.rank != (rank ? rank : "0")) return 0;
  static std::atomic<long> count = 0;
  if (fault.times >= 0 && count++ >= fault.times) return 0;
  const auto whole = static_cast<time_t>(fault.seconds);
  struct timespec left = {whole,
                          static_cast<long>(1e9 * (fault.seconds - static_cast<double>(whole)))};
  while (fault.seconds > 0 && ::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
  return fault.problem;
}

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int fsync(int descriptor) {
  if (const int problem = fault_of("fsync", path_of(descriptor)); problem != 0)
    return errno = problem, -1;
  return next<int (*)(int)>("fsync")(descriptor);
}

DIR* opendir(const char* path) {
  if (const int problem = fault_of("opendir", path); problem != 0) return errno = problem, nullptr;
  return next<DIR* (*)(const char*)>("opendir")(path);
}

DIR* fdopendir(int descriptor) {
  if (const int problem = fault_of("opendir", path_of(descriptor)); problem != 0)
    return errno = problem, nullptr;
  return next<DIR* (*)(int)>("fdopendir")(descriptor);
}
}
