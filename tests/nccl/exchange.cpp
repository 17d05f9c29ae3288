#include "nccl/exchange.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

namespace tessera::test {

namespace {

constexpr int most_ranks = 16;
constexpr std::size_t chunk = 64 << 10;

}  // namespace

struct Exchange::Head {
  std::atomic<int> here;
  std::atomic<int> pids[most_ranks];
  std::atomic<bool> left[most_ranks];
};

struct Exchange::Box {
  alignas(64) std::atomic<std::uint32_t> full;  // bytes + 1; 0: empty
  alignas(64) std::byte data[chunk];
};

Exchange::Exchange(const std::string& name, int ranks, int rank)
    : name_(name), ranks_(ranks), rank_(rank) {
  if (ranks < 1 || ranks > most_ranks || rank < 0 || rank >= ranks)
    throw std::invalid_argument("an exchange of 1 to 16 ranks");
  bytes_ = 4096 + static_cast<std::size_t>(ranks * ranks) * sizeof(Box);
  static_assert(sizeof(Head) <= 4096);
  const int file = ::shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes_)) != 0)
    throw std::runtime_error("no shared memory: " + name + ": " + std::strerror(errno));
  void* const mapped = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (mapped == MAP_FAILED) throw std::runtime_error("shared memory cannot be mapped");
  memory_ = static_cast<std::byte*>(mapped);
  head().pids[rank] = ::getpid();
  if (++head().here == ranks) ::shm_unlink(name.c_str());
}

Exchange::~Exchange() {
  head().left[rank_] = true;
  if (head().here < ranks_) ::shm_unlink(name_.c_str());  // somebody never came
  ::munmap(memory_, bytes_);
}

Exchange::Head& Exchange::head() const { return *reinterpret_cast<Head*>(memory_); }
Exchange::Box& Exchange::box(int from, int to) const {
  return reinterpret_cast<Box*>(memory_ + 4096)[from * ranks_ + to];
}

bool Exchange::look_around() {
  if (closed_) return false;
  if (++idle_ < 200) {
    std::this_thread::yield();
    return true;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(20));
  if (idle_ % 1000 == 0)
    for (int r = 0; r < ranks_; ++r)
      if (const int pid = head().pids[r];
          pid > 0 && !head().left[r] && ::kill(pid, 0) != 0 && errno == ESRCH)
        lost_ = r;
  return lost_ < 0;
}

bool Exchange::wait_for_all() {
  for (idle_ = 0; head().here < ranks_;)
    if (!look_around()) return false;
  return true;
}

bool Exchange::move(std::vector<Part>& parts, bool out) {
  bool moved = false, first[most_ranks];
  std::fill(std::begin(first), std::end(first), true);
  for (Part& part : parts) {
    if (part.bytes == 0 || !std::exchange(first[part.peer], false)) continue;
    Box& box = out ? this->box(rank_, part.peer) : this->box(part.peer, rank_);
    const std::uint32_t full = box.full.load(std::memory_order_acquire);
    if (out == (full != 0)) continue;
    const std::size_t bytes = out ? std::min(part.bytes, chunk) : full - 1;
    if (bytes > part.bytes) throw std::logic_error("more was sent than is expected");
    std::memcpy(out ? box.data : part.data, out ? part.data : box.data, bytes);
    box.full.store(out ? static_cast<std::uint32_t>(bytes) + 1 : 0, std::memory_order_release);
    part.data += bytes;
    part.bytes -= bytes;
    moved = true;
  }
  return moved;
}

bool Exchange::run(std::vector<Part> sends, std::vector<Part> receives) {
  const auto done = [](const std::vector<Part>& parts) {
    return std::all_of(parts.begin(), parts.end(), [](const Part& p) { return p.bytes == 0; });
  };
  for (idle_ = 0; !done(sends) || !done(receives);) {
    const bool sent = move(sends, true), received = move(receives, false);
    if (sent || received)
      idle_ = 0;
    else if (!look_around())
      return false;
  }
  return true;
}

}  // namespace tessera::test
