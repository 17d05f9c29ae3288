// Buffers from allocate() on any Comm, beside buffers from elsewhere, and long random sequences of
// verbs over both. Convention: every rank draws the same sequence; numbers are small and whole, so
// each rank computes what it expects exactly.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <thread>

#include "comm/checks.h"

namespace tessera::comm {
namespace {

using std::int64_t;
using Sizes = std::vector<int64_t>;

// Floats in memory that others may reach, or not.
class Room {
 public:
  Room(Comm& comm, std::size_t floats, bool reachable)
      : memory_(reachable ? comm.allocate(static_cast<int64_t>(4 * floats)) : nullptr),
        own_(reachable ? 0 : floats),
        all_(reachable ? std::span(reinterpret_cast<float*>(memory_->data()), floats)
                       : std::span(own_)) {}
  std::span<float> get() const { return all_; }

 private:
  std::unique_ptr<Memory> memory_;
  std::vector<float> own_;
  std::span<float> all_;
};
Bytes bytes_of(std::span<float> values) { return std::as_writable_bytes(values); }

void memory_is_zeroed_and_whole(Comm& comm) {
  for (int round = 0; round < 3; ++round) {
    const int64_t shared = 5000 + 3000 * comm.rank(), own = round == 1 ? 70001 : 0;
    const std::unique_ptr<Memory> memory = comm.allocate(shared, own);
    EXPECT_EQ(memory->bytes(), shared + own);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % 4096, 0u);
    EXPECT_TRUE(std::all_of(memory->data(), memory->data() + memory->bytes(),
                            [](std::byte b) { return b == std::byte{0}; }));
    std::memset(memory->data(), 0x5a, static_cast<std::size_t>(memory->bytes()));
    // Memory across the border, or behind it, is as good as any other memory.
    const std::span<float> data(reinterpret_cast<float*>(memory->data()), 1250);
    std::fill(data.begin(), data.end(), 1.0f);
    comm.all_reduce(bytes_of(data), ir::DType::f32);
    EXPECT_EQ(data[1249], static_cast<float>(comm.size()));
  }
  EXPECT_EQ(comm.allocate(0)->bytes(), 0);
}

// Freed and taken again, of other sizes on every rank, while others keep theirs.
void memory_comes_and_goes(Comm& comm) {
  std::vector<std::unique_ptr<Room>> rooms(6);
  for (std::size_t round = 0; round < 40; ++round) {
    const std::size_t i = noise(round * 64 + static_cast<std::size_t>(comm.rank())) % rooms.size();
    constexpr std::size_t n = 20000;
    rooms[i] = std::make_unique<Room>(comm, n + 1000 * round + 1,
                                      (round + static_cast<std::size_t>(comm.rank())) % 7 != 0);
    const std::span<float> data = rooms[i]->get().subspan(round, n);
    std::fill(data.begin(), data.end(), static_cast<float>(comm.rank() + 1));
    comm.all_reduce(bytes_of(data), ir::DType::f32);
    const auto wanted = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
    EXPECT_EQ(std::count(data.begin(), data.end(), wanted), std::ptrdiff_t{n}) << "round " << round;
  }
}

// Rank r's numbers, again after 1024 of them, and their sums over the first ranks.
constexpr std::size_t period = 1024, most_ranks = 33;
using Numbers = std::array<std::array<float, period>, most_ranks>;
const Numbers& numbers(bool sums) {
  static const std::array<Numbers, 2> all = [] {
    std::array<Numbers, 2> n{};
    for (std::size_t r = 0; r < most_ranks; ++r)
      for (std::size_t i = 0; i < period; ++i) {
        n[0][r][i] = static_cast<float>(small(static_cast<int>(r), static_cast<int64_t>(i)));
        n[1][r][i] = n[0][r][i] + (r > 0 ? n[1][r - 1][i] : 0.0f);
      }
    return n;
  }();
  return all[sums];
}
float value(int rank, std::size_t i) {
  return numbers(false)[static_cast<std::size_t>(rank)][i % period];
}
float sum_of(int ranks, std::size_t i) {
  return numbers(true)[static_cast<std::size_t>(ranks) - 1][i % period];
}

// One random verb on `data` (and `other`): what it starts, and what must have come of it.
struct Step {
  Comm& comm;
  std::span<float> data, other;
  std::uint64_t draw;
  int verb = 0, root = 0;
  std::size_t n = 0;
  Sizes counts{};  // bytes
  std::vector<std::size_t> at{};
  Pending pending{};

  void start() {
    const auto ranks = static_cast<std::size_t>(comm.size()),
               me = static_cast<std::size_t>(comm.rank());
    verb = static_cast<int>(draw % 5);
    root = static_cast<int>(draw / 5 % ranks);
    n = draw / 64 % 3 ? noise(draw) % 300
                      : noise(draw) % (verb == 3 ? other.size() / ranks : data.size());
    for (std::size_t i = 0; i < n; ++i) data[i] = value(comm.rank(), i);
    at.assign(1, 0);
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::size_t left = n - at.back(), part = r + 1 == ranks ? left
                                                     : draw % 2     ? left / (r % 3 + 1)
                                                                    : left / (ranks - r);
      at.push_back(at.back() + part);
      counts.push_back(static_cast<int64_t>(4 * part));
    }
    const std::span<float> mine = data.subspan(at[me], at[me + 1] - at[me]);
    if (verb == 0) pending = comm.start_all_reduce(bytes_of(data.first(n)), ir::DType::f32);
    if (verb == 1)
      pending = comm.start_reduce_scatter(bytes_of(data.first(n)), bytes_of(mine), counts,
                                          ir::DType::f32);
    if (verb == 2) pending = comm.start_all_gather(bytes_of(mine), bytes_of(data.first(n)), counts);
    if (verb == 3) {  // everyone has the same counts: rank r gets part r of all
      const Sizes received(ranks, counts[me]);
      pending = comm.start_all_to_all(bytes_of(data.first(n)), counts,
                                      bytes_of(other.first(ranks * mine.size())), received);
    }
    if (verb == 4) pending = comm.start_broadcast(bytes_of(data.first(n)), root);
  }

  int wrong() const {
    const auto me = static_cast<std::size_t>(comm.rank());
    int count = 0;
    if (verb == 0)
      for (std::size_t i = 0; i < n; ++i) count += data[i] != sum_of(comm.size(), i);
    if (verb == 1)
      for (std::size_t i = at[me]; i < at[me + 1]; ++i) count += data[i] != sum_of(comm.size(), i);
    if (verb == 2)
      for (int r = 0; r < comm.size(); ++r)
        for (std::size_t i = at[std::size_t(r)]; i < at[std::size_t(r) + 1]; ++i)
          count += data[i] != value(r, i);
    const std::size_t part = at[me + 1] - at[me];
    if (verb == 3)
      for (int r = 0; r < comm.size(); ++r)
        for (std::size_t i = 0; i < part; ++i)
          count += other[std::size_t(r) * part + i] != value(r, at[me] + i);
    if (verb == 4)
      for (std::size_t i = 0; i < n; ++i) count += data[i] != value(root, i);
    return count;
  }
};

// Up to five at a time, waited for in an order of each rank's own; some buffers can be reached,
// some not, some on some ranks only.
void random_sequences(Comm& comm) {
  constexpr std::size_t most = 60000, at_once = 5;
  std::vector<Room> rooms;
  for (std::size_t i = 0; i < at_once; ++i) {
    const bool reachable = i < 3 || (i == 3 && comm.rank() % 2 == 0);
    rooms.emplace_back(comm, most, reachable);
    rooms.emplace_back(
        comm, std::max<std::size_t>(most, 300 * static_cast<std::size_t>(comm.size())), reachable);
  }
  for (std::uint64_t round = 0; round < 24; ++round) {
    std::vector<std::unique_ptr<Step>> steps;
    for (std::size_t i = 0; i < 1 + noise(round) % at_once; ++i) {
      steps.push_back(std::make_unique<Step>(
          Step{comm, rooms[2 * i].get(), rooms[2 * i + 1].get(), noise(1000 * round + i)}));
      steps.back()->start();
    }
    for (std::size_t left = steps.size(); left > 0; --left) {
      Step& step = *steps[noise(round * 512 + left * 64 + static_cast<std::size_t>(comm.rank())) %
                          steps.size()];
      if (left % 2)
        while (!step.pending->done()) std::this_thread::yield();
      step.pending->wait();
    }
    for (const auto& step : steps) {
      step->pending->wait();
      EXPECT_EQ(step->wrong(), 0) << "round " << round << ", verb " << step->verb << ", " << step->n
                                  << " floats, rank " << comm.rank();
    }
  }
}

// A large message leaves while its sender waits for something else.
void messages_beside_collectives(Comm& comm) {
  const int next = (comm.rank() + 1) % comm.size(),
            before = (comm.rank() + comm.size() - 1) % comm.size();
  std::vector<float> out(100000, static_cast<float>(comm.rank())), in(out.size()), one(1, 1.0f);
  const Pending sending = comm.start_send(const_bytes(out), next, 1);
  if (comm.rank() == 0) comm.recv(bytes_of(std::span(in)), before, 1);
  comm.all_reduce(bytes_of(std::span(one)), ir::DType::f32);
  if (comm.rank() != 0) comm.recv(bytes_of(std::span(in)), before, 1);
  sending->wait();
  EXPECT_EQ(one[0], static_cast<float>(comm.size()));
  EXPECT_EQ(std::count(in.begin(), in.end(), static_cast<float>(before)), std::ptrdiff_t{100000});
}

constexpr Check memory_table[] = {{"memory_is_zeroed_and_whole", memory_is_zeroed_and_whole},
                                  {"memory_comes_and_goes", memory_comes_and_goes},
                                  {"random_sequences", random_sequences},
                                  {"messages_beside_collectives", messages_beside_collectives}};

}  // namespace

std::span<const Check> memory_checks() { return memory_table; }

}  // namespace tessera::comm
