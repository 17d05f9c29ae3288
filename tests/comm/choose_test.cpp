// Shared memory, rings and both together, over ranks that are threads: the checks of any Comm, with
// machines that only pretend. Convention: threads map each other's files as processes would, so
// this is the same code as under MPI.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>

#include "base/check.h"
#include "comm/checks.h"
#include "comm/choose.h"

namespace tessera::comm::choose_test {
namespace {

// Rank r is on machine r * machines / ranks (even), or all but the first few ranks are on the last
// one.
Choice choice_of(Algorithm algorithm, int rank, int ranks, int machines, bool even = true) {
  Choice choice;
  choice.algorithm = algorithm;
  choice.machine =
      "machine " + std::to_string(even ? rank * machines / ranks : std::min(rank, machines - 1));
  choice.across.ring_from = 1000;  // both ways between machines
  choice.across.ring.chunk = 20000;
  return choice;
}

void run(int ranks, Algorithm algorithm, int machines, bool even,
         const std::function<void(Comm&)>& body) {
  run_local(ranks, [&](Comm& world) {
    const std::unique_ptr<Comm> comm = choose(
        world.split(0, world.rank()), choice_of(algorithm, world.rank(), ranks, machines, even));
    body(*comm);
  });
}

class Ranks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Chosen, Ranks, testing::Values(1, 2, 3, 5, 8));

TEST_P(Ranks, Shared) { run(GetParam(), Algorithm::shared, 1, true, run_checks); }
TEST_P(Ranks, Ring) { run(GetParam(), Algorithm::ring, 1, true, run_checks); }
TEST_P(Ranks, TwoMachines) {
  run(GetParam(), Algorithm::hierarchical, std::min(2, GetParam()), true, run_checks);
}
TEST_P(Ranks, UnevenMachines) {
  run(GetParam(), Algorithm::automatic, std::min(3, GetParam()), false, run_checks);
}
TEST_P(Ranks, SharedOnSeveralMachines) { run(GetParam(), Algorithm::shared, 2, true, run_checks); }

TEST(Chosen, SaysHowTheyTalk) {
  const auto expect = [](Algorithm algorithm, int machines, const std::string& text) {
    run(4, algorithm, machines, true, [&](Comm& comm) { EXPECT_EQ(comm.describe(), text); });
  };
  expect(Algorithm::automatic, 1, "shared memory");
  expect(Algorithm::mpi, 1, "local");
  expect(Algorithm::ring, 1, "ring over local");
  expect(Algorithm::shared, 2, "local (its ranks are on several machines)");
  expect(Algorithm::automatic, 2,
         "shared memory within a machine (2 ranks here), ring over local between");
  for (const char* word : {"auto", "shared", "ring", "hierarchical", "mpi"})
    EXPECT_NO_THROW(algorithm_named(word));
  EXPECT_THROW(algorithm_named("fastest"), Error);
  for (const char* word : {"f32", "fp16", "bf16"}) EXPECT_EQ(name(wire_named(word)), word);
  EXPECT_THROW(wire_named("f8"), Error);
}

// A file that may not be as large as it must: all ranks find out, and the base remains.
TEST(Chosen, WithoutSharedMemoryTheBaseRemains) {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit little{1 << 20, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &little);
  run(3, Algorithm::automatic, 1, true, [](Comm& comm) {
    EXPECT_TRUE(comm.describe().starts_with("local (no shared memory: ")) << comm.describe();
    run_checks(comm);
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
}

// Whatever way they go, buffers in reach or not, small or large: in rank order, as threads do it.
TEST(Chosen, SharedSumsHaveTheBitsOfLocalOnes) {
  run(5, Algorithm::shared, 1, true, [](Comm& comm) {
    for (const std::int64_t n : {7, 5000, 40000, 300001})
      for (const bool reachable : {false, true}) {
        const std::unique_ptr<Memory> memory = comm.allocate(4 * n);
        std::vector<float> elsewhere(static_cast<std::size_t>(n));
        const std::span<float> data =
            reachable ? std::span(reinterpret_cast<float*>(memory->data()), elsewhere.size())
                      : std::span(elsewhere);
        for (std::int64_t i = 0; i < n; ++i)
          data[static_cast<std::size_t>(i)] = static_cast<float>(fraction(comm.rank(), i));
        comm.all_reduce(std::as_writable_bytes(data), ir::DType::f32);
        int wrong = 0;
        for (std::int64_t i = 0; i < n; ++i) {
          float sum = static_cast<float>(fraction(0, i));
          for (int r = 1; r < comm.size(); ++r) sum += static_cast<float>(fraction(r, i));
          wrong += data[static_cast<std::size_t>(i)] != sum;
        }
        EXPECT_EQ(wrong, 0) << n << (reachable ? " in reach" : " elsewhere");
      }
  });
}

// How far numbers that are sums of fractions over all ranks are from what they should be.
double worst_error(const Comm& comm, const std::vector<float>& sums, std::int64_t begin = 0) {
  double worst = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    double sum = 0;
    for (int r = 0; r < comm.size(); ++r)
      sum += static_cast<float>(fraction(r, begin + static_cast<std::int64_t>(i)));
    worst = std::max(worst, std::abs(sum - static_cast<double>(sums[i])));
  }
  return worst;
}

// Round one ring, and between two machines: half the bytes, rounded sums, the same bits on all
// ranks. Small ones travel whole.
TEST(Chosen, LargeSumsMayTravelInHalfTheBytes) {
  for (const Wire wire : {Wire::fp16, Wire::bf16})
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::hierarchical})
      run_local(4, [&](Comm& world) {
        Choice choice = choice_of(algorithm, world.rank(), 4, 2);
        const std::unique_ptr<Comm> exact = choose(world.split(0, world.rank()), choice);
        choice.across.ring.wire = wire;
        const std::unique_ptr<Comm> comm = choose(world.split(0, world.rank()), choice);
        EXPECT_NE(comm->describe().find(", large f32 sums as " + std::string(name(wire))),
                  std::string::npos)
            << comm->describe();
        constexpr std::int64_t n = 40000;
        const auto filled = [&](std::int64_t size) {
          std::vector<float> data(static_cast<std::size_t>(size));
          for (std::int64_t i = 0; i < size; ++i)
            data[static_cast<std::size_t>(i)] = static_cast<float>(fraction(comm->rank(), i));
          return data;
        };
        std::vector<float> data = filled(n), all(4 * n), part(n / 4), unrounded = data,
                           small = filled(1000);
        comm->all_reduce(bytes(data), ir::DType::f32);
        exact->all_reduce(bytes(unrounded), ir::DType::f32);
        EXPECT_EQ(2 * comm->traffic().messages.bytes, exact->traffic().messages.bytes);
        EXPECT_GT(comm->traffic().messages.bytes, 0);
        world.all_gather(const_bytes(data), bytes(all), std::vector<std::int64_t>(4, 4 * n));
        for (std::size_t r = 0; r < 4; ++r)
          EXPECT_EQ(std::memcmp(all.data() + r * n, data.data(), 4 * n), 0)
              << "other bits on rank " << r;
        data = filled(n);
        comm->reduce_scatter(const_bytes(data), bytes(part), std::vector<std::int64_t>(4, n),
                             ir::DType::f32);
        for (const double worst :
             {worst_error(*comm, std::vector<float>(all.begin(), all.begin() + n)),
              worst_error(*comm, part, comm->rank() * (n / 4))}) {
          EXPECT_LT(worst, wire == Wire::fp16 ? 0.004 : 0.03);
          EXPECT_GT(worst, 1e-5);
        }
        comm->all_reduce(bytes(small), ir::DType::f32);
        EXPECT_LT(worst_error(*comm, small), 1e-5);
      });
}

TEST(Wires, RoundToNearestEven) {
  const auto there_and_back = [](Wire wire, float x) {
    std::byte half[2];
    encode(wire, reinterpret_cast<const std::byte*>(&x), half, 1);
    float y = 0;
    decode(wire, half, reinterpret_cast<std::byte*>(&y), 1);
    return y;
  };
  const float inf = std::numeric_limits<float>::infinity();
  for (const float x :
       {0.0f, -0.0f, 1.0f, -2.5f, 65504.0f, 0x1p-14f, 0x1p-24f, -0x1.8p-20f, inf, -inf}) {
    EXPECT_EQ(there_and_back(Wire::fp16, x), x);
    EXPECT_EQ(std::signbit(there_and_back(Wire::fp16, x)), std::signbit(x));
  }
  EXPECT_EQ(there_and_back(Wire::fp16, 1 + 0x1p-11f), 1.0f);  // ties to even
  EXPECT_EQ(there_and_back(Wire::fp16, 1 + 0x3p-11f), 1 + 0x1p-9f);
  EXPECT_EQ(there_and_back(Wire::fp16, 65519.0f), 65504.0f);
  EXPECT_EQ(there_and_back(Wire::fp16, 65520.0f), inf);
  EXPECT_EQ(there_and_back(Wire::fp16, 0x1p-25f), 0.0f);
  EXPECT_EQ(there_and_back(Wire::fp16, 0x1.8p-25f), 0x1p-24f);
  EXPECT_EQ(there_and_back(Wire::bf16, 1 + 0x1p-8f), 1.0f);
  EXPECT_EQ(there_and_back(Wire::bf16, 1 + 0x3p-8f), 1 + 0x1p-6f);
  for (const Wire wire : {Wire::fp16, Wire::bf16})
    EXPECT_TRUE(std::isnan(there_and_back(wire, std::numeric_limits<float>::quiet_NaN())));
}

// A rank that throws, or ends early, is missed by those that wait for it.
TEST(ChosenFailure, ReachesThoseWhoWait) {
  for (const bool in_flight : {false, true}) {
    int told = 0;
    try {
      run(3, Algorithm::shared, 1, true, [&](Comm& comm) {
        std::vector<float> data(50000);
        if (comm.rank() == 1) {
          const Pending pending =
              in_flight ? comm.start_all_reduce(bytes(data), ir::DType::f32) : nullptr;
          throw Error(ErrorKind::data, "a bad picture");
        }
        try {
          comm.all_reduce(bytes(data), ir::DType::f32);
          comm.barrier();
        } catch (const Error& error) {
          EXPECT_EQ(error.kind, ErrorKind::rank_lost);
          if (comm.rank() == 0) told = 1;
          throw;
        }
      });
    } catch (const Error&) {
    }
    EXPECT_EQ(told, 1);
  }
}

TEST(ChosenFailure, ARankThatEndsEarlyIsMissed) {
  try {
    run(3, Algorithm::shared, 1, true, [](Comm& comm) {
      if (comm.rank() != 2) comm.barrier();
    });
    ADD_FAILURE() << "nobody missed it";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::rank_lost) << error.what();
    EXPECT_NE(
        std::string(error.what()).find("rank 2 stopped: it left the group before this barrier"),
        std::string::npos)
        << error.what();
  }
}

TEST(ChosenFailure, DifferentCallsAreNamed) {
  try {
    run(2, Algorithm::shared, 1, true, [](Comm& comm) {
      std::vector<float> data(comm.rank() ? 5 : 6);
      comm.all_reduce(bytes(data), ir::DType::f32);
    });
    ADD_FAILURE() << "different sizes were added";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(" bytes as f32 where rank "), std::string::npos)
        << error.what();
  }
  // As many bytes in all, but not of the same ranks.
  for (const bool gather : {false, true}) {
    try {
      run(2, Algorithm::shared, 1, true, [&](Comm& comm) {
        std::vector<float> all(4), mine(1);
        const std::vector<std::int64_t> counts =
            comm.rank() ? std::vector<std::int64_t>{12, 4} : std::vector<std::int64_t>{4, 12};
        if (gather)
          comm.all_gather(const_bytes(mine), bytes(all), counts);
        else
          comm.reduce_scatter(const_bytes(all), bytes(mine), counts, ir::DType::f32);
      });
      ADD_FAILURE() << "different parts were taken";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("disagree about whose part is how large"),
                std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace tessera::comm::choose_test
