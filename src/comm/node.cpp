// Files without names, mapped by peers through /proc/PID/fd: nothing is left behind by a rank that
// is killed, and a container's small /dev/shm is no limit.
#include "comm/node.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>

#include "base/check.h"
#include "base/process.h"

namespace tessera::comm {

namespace {

using std::int64_t;

const int64_t page = ::sysconf(_SC_PAGESIZE);
int64_t in_pages(int64_t bytes) { return (bytes + page - 1) / page * page; }
std::size_t size(int64_t bytes) { return static_cast<std::size_t>(bytes); }

// As much as the machine could ever hold, so that neither the file nor a mapping of it ever has to
// grow. TESSERA_SHARED_MB: less, where address space is dear (ThreadSanitizer, limits of a
// process).
int64_t reach() {
  if (const char* text = std::getenv("TESSERA_SHARED_MB"))
    return std::clamp<int64_t>(std::strtoll(text, nullptr, 10), 1, 1 << 24) << 20;
  const auto memory = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return static_cast<int64_t>(std::bit_ceil(std::max<std::uint64_t>(memory, 1u << 30)));
}

std::byte* map(int file, int64_t bytes) {
  void* at =
      ::mmap(nullptr, size(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

// When a process was started, in ticks; 0 when there is none, or only what its parent has not
// fetched yet.
int64_t birth_of(int64_t process) {
  const ProcessStat stat = stat_of(static_cast<int>(process));
  return stat.state == 'Z' || stat.state == 'X' ? 0 : static_cast<int64_t>(stat.started);
}

// A rank says this of itself before ranks can reach each other.
struct Card {
  std::uint64_t machine = 0, token = 0;
  int64_t process = 0, born = 0, bytes = 0;
  std::int32_t file = -1, unused = 0;
};

}  // namespace

std::string machine_name() {
  if (const char* pretend = std::getenv("TESSERA_HOST"); pretend && *pretend) return pretend;
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return host_name() + " " + boot;
}

bool Node::open_own(std::uint64_t token) {
  Peer& me = peers_[static_cast<std::size_t>(rank_)];
  me.bytes = reach();
  file_ = ::memfd_create("tessera", MFD_CLOEXEC);
  if (file_ < 0 || ::ftruncate(file_, me.bytes) != 0)
    return false;  // no page is taken before it is touched
  me.base = map(file_, me.bytes);
  if (!me.base) return false;
  std::memcpy(me.base, &token, sizeof(token));
  free_[page] = me.bytes - page;
  return true;
}

bool Node::open_peer(Peer& peer, int file, std::uint64_t token) {
  const std::string path = "/proc/" + std::to_string(peer.process) + "/fd/" + std::to_string(file);
  const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return false;
  peer.base = map(opened, peer.bytes);
  ::close(opened);
  if (!peer.base) return false;
  std::uint64_t found = 0;
  std::memcpy(&found, peer.base, sizeof(found));
  return found == token;  // another process of this number may live in another container
}

std::shared_ptr<Node> Node::make(Comm& world, const std::string& machine, std::string& reason) {
  const auto ranks = static_cast<std::size_t>(world.size());
  std::shared_ptr<Node> node(new Node);
  node->rank_ = world.rank();
  node->peers_.resize(ranks);
  std::random_device random;
  Card mine;
  mine.machine = std::hash<std::string>()(machine);
  mine.token = (std::uint64_t{random()} << 32 | random()) | 1;
  mine.process = ::getpid();
  mine.born = birth_of(mine.process);
  bool mapped = node->open_own(mine.token);
  if (!mapped) reason = std::string("no memory to share: ") + std::strerror(errno);
  mine.bytes = node->peers_[static_cast<std::size_t>(world.rank())].bytes;
  mine.file = mapped ? node->file_ : -1;
  std::vector<Card> cards(ranks);
  world.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(cards)),
                   std::vector<int64_t>(ranks, int64_t{sizeof(Card)}));
  node->here_ = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const Card& card = cards[r];
    Peer& peer = node->peers_[r];
    peer.machine =
        static_cast<int>(std::find_if(cards.begin(), cards.end(),
                                      [&](const Card& c) { return c.machine == card.machine; }) -
                         cards.begin());
    peer.process = card.process;
    peer.born = card.born;
    peer.bytes = card.bytes;
    if (card.machine != mine.machine) continue;
    ++node->here_;
    if (static_cast<int>(r) == world.rank() || !mapped) continue;
    if (card.file < 0 || !node->open_peer(peer, card.file, card.token)) {
      mapped = false;
      reason = "rank " + std::to_string(world.rank()) + " cannot map the memory of rank " +
               std::to_string(r);
    }
  }
  std::int32_t all = mapped ? 1 : 0;
  world.all_reduce(std::as_writable_bytes(std::span(&all, 1)), ir::DType::i32, Reduction::min);
  if (all) return node;
  if (reason.empty()) reason = "another rank cannot map the memory of its peers";
  return nullptr;
}

Node::~Node() {
  for (const Peer& peer : peers_)
    if (peer.base) ::munmap(peer.base, size(peer.bytes));
  if (file_ >= 0) ::close(file_);
}

int64_t Node::take(int64_t bytes) {
  clean_up();
  bytes = in_pages(std::max<int64_t>(bytes, 1));
  const auto fits = std::find_if(free_.begin(), free_.end(),
                                 [&](const auto& range) { return range.second >= bytes; });
  if (fits == free_.end()) return -1;
  const auto [place, room] = *fits;
  free_.erase(fits);
  if (room > bytes) free_[place + bytes] = room - bytes;
  return place;
}

void Node::give(int64_t place, int64_t bytes) {
  bytes = in_pages(std::max<int64_t>(bytes, 1));
  // The pages go back at once, although others have them mapped; the next owner finds zeros.
  ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, place, bytes);
  auto next = free_.lower_bound(place);
  if (next != free_.end() && next->first == place + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin())
    if (const auto before = std::prev(next); before->first + before->second == place) {
      before->second += bytes;
      return;
    }
  free_[place] = bytes;
}

void Node::give_later(int64_t place, int64_t bytes, std::function<bool()> unused) {
  later_.push_back({place, bytes, std::move(unused)});
  clean_up();
}

void Node::clean_up() {
  for (std::size_t i = later_.size(); i-- > 0;) {
    if (!later_[i].unused()) continue;
    give(later_[i].place, later_[i].bytes);
    later_.erase(later_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

bool Node::alive(int rank) const {
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  return birth_of(peer.process) == peer.born;
}

// One range of addresses: pages of the file first, then pages of this process alone.
class Node::Reachable final : public Memory {
 public:
  Reachable(std::shared_ptr<Node> node, int64_t place, int64_t shared, int64_t own)
      : node_(std::move(node)), place_(place) {
    shared_ = in_pages(shared);
    range_ = std::max(shared_, in_pages(shared + own));
    void* at = ::mmap(nullptr, size(range_), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) fail();
    data_ = static_cast<std::byte*>(at);
    bytes_ = shared + own;
    if (::mmap(at, size(shared_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, node_->file_,
               place) == MAP_FAILED) {
      ::munmap(at, size(range_));
      fail();
    }
    ::madvise(at, size(range_), MADV_HUGEPAGE);
    node_->segments_[data_] = {shared_, place_};
  }
  ~Reachable() override {
    node_->segments_.erase(data_);
    ::munmap(data_, size(range_));
    node_->give(place_, shared_);
  }

 private:
  std::shared_ptr<Node> node_;
  int64_t place_, shared_ = 0, range_ = 0;

  [[noreturn]] void fail() {
    const std::string reason = std::strerror(errno);
    node_->give(place_, shared_);
    throw Error(ErrorKind::memory,
                "the system has no " + std::to_string(range_ / 1'000'000) + " MB more: " + reason,
                "memory");
  }
};

std::unique_ptr<Memory> Node::allocate(int64_t shared, int64_t own) {
  const int64_t place = shared > 0 ? take(shared) : -1;
  if (place < 0) return plain_memory(shared + own);
  return std::make_unique<Reachable>(shared_from_this(), place, shared, own);
}

int64_t Node::place_of(const std::byte* data, int64_t bytes) const {
  auto after = segments_.upper_bound(data);
  if (after == segments_.begin()) return -1;
  const auto& [begin, segment] = *std::prev(after);
  const int64_t offset = data - begin;
  return offset + bytes <= segment.bytes ? segment.place + offset : -1;
}

}  // namespace tessera::comm
