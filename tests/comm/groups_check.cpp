// Groups, operations in flight, determinism and traffic on any Comm.
// Convention: what must be equal on all ranks is gathered and compared, so each rank sees a
// difference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "comm/checks.h"

namespace tessera::comm {
namespace {

using std::int64_t;
using Sizes = std::vector<int64_t>;

int sum_of_ranks(Comm& comm, int mine) {
  std::vector<std::int32_t> data = {mine};
  comm.all_reduce(bytes(data), ir::DType::i32);
  return data[0];
}

// Two rows; columns numbered from the far end by their keys.
void rows_and_columns(Comm& world) {
  const int columns = (world.size() + 1) / 2, row = world.rank() / columns,
            column = world.rank() % columns;
  const std::unique_ptr<Comm> rows = world.split(row, world.rank()),
                              cols = world.split(column, -row);
  const int in_my_row = row == 0 ? columns : world.size() - columns,
            in_my_column = columns + column < world.size() ? 2 : 1;
  EXPECT_EQ(rows->size(), in_my_row);
  EXPECT_EQ(rows->rank(), column);
  EXPECT_EQ(cols->size(), in_my_column);
  EXPECT_EQ(cols->rank(), in_my_column - 1 - row);
  int wanted_row = 0, wanted_column = 0;
  for (int r = 0; r < world.size(); ++r) {
    wanted_row += r / columns == row ? 1 + r * r : 0;
    wanted_column += r % columns == column ? 1 + r * r : 0;
  }
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(sum_of_ranks(*rows, 1 + world.rank() * world.rank()), wanted_row);
    EXPECT_EQ(sum_of_ranks(*cols, 1 + world.rank() * world.rank()), wanted_column);
  }
  // A group of a group, and groups of one.
  const std::unique_ptr<Comm> again = rows->split(0, -rows->rank()),
                              alone = world.split(world.rank(), 0);
  EXPECT_EQ(again->rank(), rows->size() - 1 - rows->rank());
  EXPECT_EQ(sum_of_ranks(*again, 1), in_my_row);
  EXPECT_EQ(alone->size(), 1);
  EXPECT_EQ(sum_of_ranks(*alone, world.rank()), world.rank());
  EXPECT_EQ(world.split(3, 0)->size(), world.size());
}

// Many operations in flight at once; ranks wait for them in orders of their own, in two groups.
void in_flight(Comm& world) {
  constexpr std::size_t operations = 12, elements = 9000;
  const std::unique_ptr<Comm> other = world.split(world.rank() % 2, world.rank());
  std::vector<std::vector<float>> data(operations), gathered(operations);
  std::vector<Pending> pending(2 * operations);
  std::vector<std::size_t> order(2 * operations);
  for (std::size_t i = 0; i < operations; ++i) {
    data[i].assign(i % 3 ? elements : 5, static_cast<float>(i + 1));
    gathered[i].assign(static_cast<std::size_t>(world.size()), 0);
    std::vector<float>& out = gathered[i];
    const auto me = static_cast<std::size_t>(world.rank());
    out[me] = static_cast<float>(10 * me + i);
    pending[2 * i] = other->start_all_reduce(bytes(data[i]), ir::DType::f32);
    pending[2 * i + 1] = world.start_all_gather(const_bytes(out).subspan(4 * me, 4), bytes(out),
                                                Sizes(out.size(), 4));
  }
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](auto a, auto b) {
    return small(world.rank(), int64_t(a)) < small(world.rank(), int64_t(b));
  });
  for (std::size_t i : order) {
    if (i % 4 == 0)
      while (!pending[i]->done()) std::this_thread::yield();
    if (i % 4 == 1) pending[i].reset();  // the destructor waits
    if (i % 4 >= 2) pending[i]->wait();
  }
  for (std::size_t i = 0; i < operations; ++i) {
    const auto wanted = static_cast<float>(i + 1) * static_cast<float>(other->size());
    EXPECT_TRUE(std::all_of(data[i].begin(), data[i].end(), [&](float x) { return x == wanted; }))
        << "operation " << i;
    for (std::size_t r = 0; r < gathered[i].size(); ++r)
      EXPECT_EQ(gathered[i][r], static_cast<float>(10 * r + i));
  }
}

void messages_in_flight(Comm& comm) {
  // Everyone to everyone, both directions at once, and to itself.
  std::vector<std::int32_t> out(static_cast<std::size_t>(comm.size())), in(out.size(), -1);
  std::vector<Pending> pending;
  for (int r = 0; r < comm.size(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    out[i] = 100 * comm.rank() + r;
    pending.push_back(comm.start_recv(bytes(in).subspan(4 * i, 4), r, 7));
    pending.push_back(comm.start_send(const_bytes(out).subspan(4 * i, 4), r, 7));
  }
  while (!pending.empty()) {
    pending.back()->wait();
    pending.back()->wait();  // again is nothing
    EXPECT_TRUE(pending.back()->done());
    pending.pop_back();
  }
  for (int r = 0; r < comm.size(); ++r)
    EXPECT_EQ(in[static_cast<std::size_t>(r)], 100 * r + comm.rank());
}

template <class T>
void check_same_bits(Comm& comm, ir::DType dtype) {
  for (int64_t n : {3, 1001, 30011}) {
    std::vector<T> first;
    for (int run = 0; run < 3; ++run) {
      std::vector<T> data;
      for (int64_t i = 0; i < n; ++i)
        data.push_back(static_cast<T>(static_cast<float>(fraction(comm.rank(), i))));
      comm.all_reduce(bytes(data), dtype);
      if (run == 0) first = data;
      EXPECT_EQ(std::memcmp(first.data(), data.data(), data.size() * sizeof(T)), 0)
          << "another run, other bits: " << ir::name(dtype);
    }
    std::vector<T> all(first.size() * static_cast<std::size_t>(comm.size()));
    comm.all_gather(const_bytes(first), bytes(all),
                    Sizes(static_cast<std::size_t>(comm.size()), n * int64_t{sizeof(T)}));
    for (int r = 0; r < comm.size(); ++r)
      EXPECT_EQ(std::memcmp(all.data() + r * n, first.data(), first.size() * sizeof(T)), 0)
          << "rank " << r << " has other bits than rank " << comm.rank() << ": " << ir::name(dtype)
          << " of " << n;
  }
}

void same_bits_everywhere(Comm& comm) {
  check_same_bits<double>(comm, ir::DType::f64);
  check_same_bits<float>(comm, ir::DType::f32);
  check_same_bits<Bf16>(comm, ir::DType::bf16);
}

void traffic(Comm& comm) {
  comm.reset_traffic();
  const int n = comm.size(), next = (comm.rank() + 1) % n, before = (comm.rank() + n - 1) % n;
  std::vector<float> data(12), all(static_cast<std::size_t>(12 * n));
  const Sizes counts(static_cast<std::size_t>(n), 48);
  comm.all_reduce(bytes(data), ir::DType::f32);
  comm.start_all_reduce(bytes(data).first(8), ir::DType::f32)->wait();
  comm.all_gather(const_bytes(data), bytes(all), counts);
  comm.reduce_scatter(const_bytes(all), bytes(data), counts, ir::DType::f32);
  std::vector<float> other(all.size());
  comm.all_to_all(const_bytes(all), counts, bytes(other), counts);
  comm.broadcast(bytes(data).first(20), 0);
  const Pending sending = comm.start_send(const_bytes(data).first(12), next, 0);
  comm.recv(bytes(other).first(12), before, 0);
  sending->wait();
  comm.barrier();
  comm.barrier();
  Traffic wanted;
  wanted[Verb::all_reduce] = {2, 56};
  wanted[Verb::all_gather] = {1, 48};
  wanted[Verb::reduce_scatter] = wanted[Verb::all_to_all] = {1, 48 * n};
  wanted[Verb::broadcast] = {1, 20};
  wanted[Verb::send] = wanted[Verb::recv] = {1, 12};
  wanted[Verb::barrier] = {2, 0};
  for (int v = 0; v < verb_count; ++v) {
    const Verb verb{static_cast<std::uint8_t>(v)};
    EXPECT_EQ(comm.traffic()[verb].count, wanted[verb].count) << name(verb);
    EXPECT_EQ(comm.traffic()[verb].bytes, wanted[verb].bytes) << name(verb);
  }
  EXPECT_EQ(comm.traffic().total(), (Traffic::Row{10, 148 + 96 * n}));
  comm.reset_traffic();
  const std::unique_ptr<Comm> part = comm.split(0, 0);
  part->barrier();
  EXPECT_EQ(comm.traffic().total(), Traffic::Row{})
      << "a split is free, and a group counts for itself";
}

constexpr Check group_table[] = {{"rows_and_columns", rows_and_columns},
                                 {"in_flight", in_flight},
                                 {"messages_in_flight", messages_in_flight},
                                 {"same_bits_everywhere", same_bits_everywhere},
                                 {"traffic", traffic}};

}  // namespace

std::span<const Check> group_checks() { return group_table; }

}  // namespace tessera::comm
