// Every verb on any Comm: all dtypes, sizes of nothing, one, odd and large, parts of uneven
// extents. Convention: inputs are functions of (rank, element), so that each rank computes what it
// expects by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/checks.h"

namespace tessera::comm {
namespace {

using std::int64_t;
using Sizes = std::vector<int64_t>;

// Gives what a reduction gives for the first n elements. A rank works it out once, for all dtypes
// and parts: over many ranks this would be most of the time.
const std::vector<int>& expected(Reduction how, int ranks, int64_t n) {
  thread_local std::map<std::pair<Reduction, int>, std::vector<int>> known;
  std::vector<int>& all = known[{how, ranks}];
  for (auto i = static_cast<int64_t>(all.size()); i < n; ++i) {
    int result = small(0, i);
    for (int r = 1; r < ranks; ++r) {
      const int x = small(r, i);
      result = how == Reduction::sum   ? result + x
               : how == Reduction::max ? std::max(result, x)
                                       : std::min(result, x);
    }
    all.push_back(result);
  }
  return all;
}

template <class T>
std::vector<T> values(int rank, int64_t n) {
  std::vector<T> data;
  for (int64_t i = 0; i < n; ++i) data.push_back(static_cast<T>(small(rank, i)));
  return data;
}

// Extents of parts in elements: even, growing, with holes, all with the last.
std::vector<Sizes> patterns(int ranks) {
  std::vector<Sizes> all(4);
  for (int r = 0; r < ranks; ++r) {
    all[0].push_back(5);
    all[1].push_back(r * 3 + 1);
    all[2].push_back(r % 2 ? 0 : 700 + r);
    all[3].push_back(r == ranks - 1 ? 3001 : 0);
  }
  return all;
}
Sizes times(Sizes sizes, int64_t factor) {
  for (int64_t& size : sizes) size *= factor;
  return sizes;
}
int64_t sum(const Sizes& sizes, int most) {
  return std::accumulate(sizes.begin(), sizes.begin() + most, int64_t{0});
}

template <class T>
void check_reductions(Comm& comm, ir::DType dtype) {
  const auto me = static_cast<std::size_t>(comm.rank());
  for (Reduction how : {Reduction::sum, Reduction::max, Reduction::min}) {
    for (int64_t n : {0, 1, 7, 1000, 40001}) {
      std::vector<T> data = values<T>(comm.rank(), n);
      comm.all_reduce(bytes(data), dtype, how);
      const std::vector<int>& want = expected(how, comm.size(), n);
      int wrong = 0;
      for (std::size_t i = 0; i < data.size(); ++i)
        wrong += static_cast<double>(data[i]) != want[i];
      EXPECT_EQ(wrong, 0) << ir::name(dtype) << " of " << n << ", rank " << comm.rank();
    }
    for (const Sizes& parts : patterns(comm.size()))
      for (bool in_place : {false, true}) {
        std::vector<T> in = values<T>(comm.rank(), sum(parts, comm.size())),
                       out(static_cast<std::size_t>(parts[me]));
        const int64_t begin = sum(parts, comm.rank());
        const std::span<T> mine =
            in_place ? std::span(in).subspan(static_cast<std::size_t>(begin), out.size())
                     : std::span(out);
        comm.reduce_scatter(const_bytes(in), std::as_writable_bytes(mine), times(parts, sizeof(T)),
                            dtype, how);
        const std::vector<int>& want = expected(how, comm.size(), sum(parts, comm.size()));
        int wrong = 0;
        for (std::size_t i = 0; i < mine.size(); ++i)
          wrong += static_cast<double>(mine[i]) != want[static_cast<std::size_t>(begin) + i];
        EXPECT_EQ(wrong, 0) << "reduce_scatter of " << ir::name(dtype) << ", rank " << comm.rank()
                            << (in_place ? " in place" : "");
      }
  }
}

void reductions(Comm& comm) {
  check_reductions<double>(comm, ir::DType::f64);
  check_reductions<float>(comm, ir::DType::f32);
  check_reductions<Bf16>(comm, ir::DType::bf16);
  check_reductions<int64_t>(comm, ir::DType::i64);
  check_reductions<std::int32_t>(comm, ir::DType::i32);
  check_reductions<std::uint8_t>(comm, ir::DType::u8);
}

void nan_wins(Comm& comm) {
  for (Reduction how : {Reduction::sum, Reduction::max, Reduction::min})
    for (int who = 0; who < comm.size(); ++who) {
      std::vector<float> data = {1,
                                 comm.rank() == who ? std::numeric_limits<float>::quiet_NaN() : 2};
      comm.all_reduce(bytes(data), ir::DType::f32, how);
      EXPECT_TRUE(data[1] != data[1]) << "NaN of rank " << who << " was lost";
      EXPECT_FALSE(data[0] != data[0]);
    }
}

void all_gather(Comm& comm) {
  for (const Sizes& parts : patterns(comm.size()))
    for (bool in_place : {false, true}) {
      const int64_t mine = parts[static_cast<std::size_t>(comm.rank())],
                    begin = sum(parts, comm.rank());
      const std::vector<float> in = values<float>(comm.rank(), mine);
      std::vector<float> out(static_cast<std::size_t>(sum(parts, comm.size())), -1.0f);
      const std::span<float> place =
          std::span(out).subspan(static_cast<std::size_t>(begin), in.size());
      if (in_place) std::copy(in.begin(), in.end(), place.begin());
      comm.all_gather(in_place ? std::as_bytes(place) : const_bytes(in), bytes(out),
                      times(parts, sizeof(float)));
      std::vector<float> wanted;
      for (int r = 0; r < comm.size(); ++r)
        for (float x : values<float>(r, parts[static_cast<std::size_t>(r)])) wanted.push_back(x);
      EXPECT_EQ(out, wanted) << "rank " << comm.rank();
    }
}

void all_to_all(Comm& comm) {
  for (int factor : {0, 1, 13, 2000}) {
    const auto bytes_between = [&](int from, int to) { return (from * 3 + to * 5) % 4 * factor; };
    Sizes sent, received;
    std::vector<std::uint8_t> in, wanted;
    for (int r = 0; r < comm.size(); ++r) {
      sent.push_back(bytes_between(comm.rank(), r));
      received.push_back(bytes_between(r, comm.rank()));
      for (int64_t i = 0; i < sent.back(); ++i)
        in.push_back(static_cast<std::uint8_t>(small(comm.rank(), i + r)));
      for (int64_t i = 0; i < received.back(); ++i)
        wanted.push_back(static_cast<std::uint8_t>(small(r, i + comm.rank())));
    }
    std::vector<std::uint8_t> out(wanted.size(), 99);
    comm.all_to_all(const_bytes(in), sent, bytes(out), received);
    EXPECT_EQ(out, wanted) << "rank " << comm.rank();
  }
}

void broadcast(Comm& comm) {
  for (int root = 0; root < comm.size(); ++root)
    for (int64_t n : {0, 1, 3, 5001}) {
      std::vector<std::int32_t> data =
          values<std::int32_t>(comm.rank() == root ? root : 40 + comm.rank(), n);
      comm.broadcast(bytes(data), root);
      EXPECT_EQ(data, values<std::int32_t>(root, n)) << "rank " << comm.rank() << " from " << root;
    }
}

void ring(Comm& comm) {
  const int next = (comm.rank() + 1) % comm.size(),
            before = (comm.rank() + comm.size() - 1) % comm.size();
  for (int64_t n : {0, 1, 999, 50001}) {
    std::vector<float> out = values<float>(comm.rank(), n), in(static_cast<std::size_t>(n));
    const Pending sending = comm.start_send(const_bytes(out), next, 3);
    comm.recv(bytes(in), before, 3);
    sending->wait();
    EXPECT_EQ(in, values<float>(before, n)) << "rank " << comm.rank();
  }
}

// Messages of one tag come in order, those of several tags in any order.
void messages_keep_their_order(Comm& comm) {
  const int next = (comm.rank() + 1) % comm.size(),
            before = (comm.rank() + comm.size() - 1) % comm.size();
  std::vector<std::int32_t> out(6), in(6, -1);
  std::iota(out.begin(), out.end(), 10 * comm.rank());
  std::vector<Pending> sending;
  for (std::size_t i = 0; i < 6; ++i)
    sending.push_back(
        comm.start_send(const_bytes(out).subspan(4 * i, 4), next, static_cast<int>(i % 2)));
  for (std::size_t i : {1, 3, 0, 5, 2, 4})
    comm.recv(bytes(in).subspan(4 * i, 4), before, static_cast<int>(i % 2));
  sending.clear();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(in[static_cast<std::size_t>(i)], 10 * before + i);
}

void wrong_arguments(Comm& comm) {
  std::vector<float> data(8);
  const Sizes short_counts(static_cast<std::size_t>(comm.size()), 0);
  const Sizes too_few(static_cast<std::size_t>(comm.size()) + 1, 0),
      negative(static_cast<std::size_t>(comm.size()), -4);
  EXPECT_THROW(comm.all_reduce(bytes(data).subspan(1), ir::DType::f32), Error);
  EXPECT_THROW(comm.reduce_scatter(const_bytes(data), bytes(data), short_counts, ir::DType::f32),
               Error);
  EXPECT_THROW(comm.all_gather(const_bytes(data), bytes(data), short_counts), Error);
  EXPECT_THROW(comm.all_gather({}, {}, too_few), Error);
  EXPECT_THROW(comm.all_gather({}, {}, negative), Error);
  EXPECT_THROW(comm.all_to_all(const_bytes(data), short_counts, {}, short_counts), Error);
  EXPECT_THROW(comm.broadcast(bytes(data), comm.size()), Error);
  EXPECT_THROW(comm.send(const_bytes(data), -1, 0), Error);
  EXPECT_THROW(comm.recv(bytes(data), 0, -1), Error);
  comm.barrier();
}

constexpr Check verb_table[] = {{"reductions", reductions},
                                {"nan_wins", nan_wins},
                                {"all_gather", all_gather},
                                {"all_to_all", all_to_all},
                                {"broadcast", broadcast},
                                {"ring", ring},
                                {"messages_keep_their_order", messages_keep_their_order},
                                {"wrong_arguments", wrong_arguments}};

}  // namespace

std::span<const Check> verb_checks() { return verb_table; }

void run_checks(Comm& comm) {
  for (std::span<const Check> some : {verb_checks(), group_checks(), memory_checks()})
    for (const Check& check : some) {
      SCOPED_TRACE(std::string(check.name) + " on " + std::to_string(comm.size()) + " ranks");
      check.run(comm);
    }
}

}  // namespace tessera::comm
