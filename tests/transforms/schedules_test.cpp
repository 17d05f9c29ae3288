// Every builder over a grid of sizes: the schedule can run, its bubble is the formula's, as much is
// in flight as promised; and the simulation gives the earliest times and an order that one process
// could follow.
#include "transforms/schedules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/check.h"

namespace tessera::transforms::schedules_test {
namespace {

using Where = std::tuple<int, int, Work>;
Where key(const Turn& t) { return {t.stage, t.micro, t.work}; }

// F = 1, B = 2, or 1 and 1 where it is split: what formulas assume.
double unit(const Schedule& s) {
  const bool splits = s.splits();
  return bubble(
      simulate(s, [&](const Turn& t) { return t.work == Work::backward && !splits ? 2.0 : 1.0; }),
      static_cast<int>(s.ranks.size()));
}

// Each turn starts as soon as its rank is free and what it needs has arrived (which decides all
// times), after what it needs in the list.
void expect_earliest(const Schedule& s, const std::vector<Timed>& turns, double transfer) {
  std::map<Where, const Timed*> done;
  std::vector<double> free(s.ranks.size(), 0);
  std::vector<std::size_t> next(s.ranks.size(), 0);
  double last = 0;
  for (const Timed& t : turns) {
    const auto rank = static_cast<std::size_t>(t.rank);
    ASSERT_LT(next[rank], s.ranks[rank].size());
    ASSERT_EQ(name(t.turn), name(s.ranks[rank][next[rank]++]))
        << s.name << ": rank " << t.rank << " leaves its order";
    double start = free[rank];
    for (const Turn& need : needs(s, t.turn)) {
      ASSERT_TRUE(done.contains(key(need)))
          << s.name << ": " << name(t.turn) << " stands before " << name(need);
      const Timed& before = *done[key(need)];
      start = std::max(start, before.end + (before.rank == t.rank ? 0 : transfer));
    }
    ASSERT_DOUBLE_EQ(t.start, start) << s.name << ": " << name(t.turn);
    ASSERT_GE(t.start, last);
    last = t.start;
    free[rank] = t.end;
    done[key(t.turn)] = &t;
  }
  for (std::size_t r = 0; r < s.ranks.size(); ++r) ASSERT_EQ(next[r], s.ranks[r].size());
}

void expect_sound(const Schedule& s, double formula) {
  SCOPED_TRACE(s.name + " ranks=" + std::to_string(s.ranks.size()) +
               " stages=" + std::to_string(s.stages) + " micros=" + std::to_string(s.micros));
  ASSERT_NO_THROW(check(s));
  for (int stage = 0; stage < s.stages; ++stage)
    ASSERT_EQ(s.home(stage), stage % static_cast<int>(s.ranks.size()));
  EXPECT_NEAR(unit(s), formula, 1e-12);
  EXPECT_EQ(parse_schedule(print(s), "text"), s);
  // Uneven costs, some of them nothing at all, so that many turns start together.
  const auto uneven = [](const Turn& t) {
    return (t.stage * 7 + t.micro * 3 + static_cast<int>(t.work)) % 4;
  };
  for (const double transfer : {0.0, 0.5})
    expect_earliest(s, simulate(s, uneven, transfer), transfer);
}

template <class F>
void each_size(F f) {
  for (int ranks = 1; ranks <= 4; ++ranks)
    for (int micros = 1; micros <= 16; ++micros) f(ranks, micros);
}

TEST(Schedules, GpipeHoldsEverything) {
  each_size([](int ranks, int micros) {
    for (int chunks = 1; chunks <= 3; ++chunks) {
      const Schedule s = gpipe(ranks, ranks * chunks, micros);
      expect_sound(s, gpipe_bubble(ranks, ranks * chunks, micros));
      EXPECT_TRUE(s.trains() && !s.splits());
      for (int r = 0; r < ranks; ++r) EXPECT_EQ(in_flight(s, r), micros * chunks);
    }
    EXPECT_NEAR(gpipe_bubble(ranks, ranks, micros), (ranks - 1.0) / (micros + ranks - 1.0), 1e-15);
  });
}

TEST(Schedules, OneForwardOneBackwardHoldsAsManyAsRanksFollow) {
  each_size([](int ranks, int micros) {
    const Schedule s = one_f_one_b(ranks, micros);
    expect_sound(s, one_f_one_b_bubble(ranks, micros));
    for (int r = 0; r < ranks; ++r) EXPECT_EQ(in_flight(s, r), std::min(ranks - r, micros));
  });
}

TEST(Schedules, InterleavedDividesTheBubble) {
  each_size([](int ranks, int micros) {
    for (int chunks = 1; chunks <= 3; ++chunks) {
      const Schedule s = interleaved(ranks, chunks, micros);
      expect_sound(s, interleaved_bubble(ranks, chunks, micros));
      if (micros >= ranks) {
        EXPECT_NEAR(unit(s), (ranks - 1.0) / (chunks * micros + ranks - 1.0), 1e-12);
      }
      const int count = std::max(1, micros / ranks), group = (micros + count - 1) / count;
      for (int r = 0; r < ranks; ++r)
        EXPECT_EQ(in_flight(s, r),
                  chunks == 1
                      ? std::min(ranks - r, micros)
                      : std::min((chunks - 1) * group + 2 * (ranks - 1 - r) + 1, chunks * micros));
    }
  });
}

TEST(Schedules, ZeroBubbleLeavesAThirdInTheMemoryOf1F1B) {
  each_size([](int ranks, int micros) {
    const Schedule s = zb_h1(ranks, micros);
    expect_sound(s, zb_h1_bubble(ranks, micros));
    EXPECT_TRUE(s.splits());
    for (int r = 0; r < ranks; ++r) EXPECT_EQ(in_flight(s, r), std::min(ranks, micros));
    if (micros < ranks) return;
    // (ranks - 1)(F + B - W) of idle time on each rank.
    const double span = simulate(s, [](const Turn&) { return 1.0; }).back().end;
    EXPECT_EQ(span, 3 * micros + (ranks - 1) * (1 + 1 - 1));
    const double plain = one_f_one_b_bubble(ranks, micros), zero = zb_h1_bubble(ranks, micros);
    EXPECT_NEAR(plain / (1 - plain), 3 * zero / (1 - zero), 1e-12);
  });
}

TEST(Schedules, InferenceKeepsNothing) {
  each_size([](int ranks, int micros) {
    for (int chunks = 1; chunks <= 3; ++chunks) {
      const Schedule s = forward_only(ranks, ranks * chunks, micros);
      expect_sound(s, forward_only_bubble(ranks, ranks * chunks, micros));
      EXPECT_FALSE(s.trains());
      for (int r = 0; r < ranks; ++r) EXPECT_EQ(in_flight(s, r), 0);
    }
  });
}

TEST(Schedules, OrdersAsPublished) {
  EXPECT_EQ(print(gpipe(1, 2, 2)),
            "schedule gpipe stages=2 micros=2\nrank 0: F0.0 F1.0 F0.1 F1.1 B1.0 B0.0 B1.1 B0.1\n");
  EXPECT_EQ(print(one_f_one_b(2, 3)),
            "schedule 1f1b stages=2 micros=3\n"
            "rank 0: F0.0 F0.1 B0.0 F0.2 B0.1 B0.2\n"
            "rank 1: F1.0 B1.0 F1.1 B1.1 F1.2 B1.2\n");
  EXPECT_EQ(
      print(interleaved(2, 2, 4)),
      "schedule interleaved stages=4 micros=4\n"
      "rank 0: F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 B2.2 B2.3 B0.2 B0.3\n"
      "rank 1: F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 F1.2 B1.0 F1.3 B1.1 F3.2 B3.2 F3.3 B3.3 B1.2 B1.3\n");
  EXPECT_EQ(print(zb_h1(2, 3)),
            "schedule zb-h1 stages=2 micros=3\n"
            "rank 0: F0.0 F0.1 B0.0 W0.0 F0.2 B0.1 W0.1 B0.2 W0.2\n"
            "rank 1: F1.0 B1.0 F1.1 B1.1 W1.0 F1.2 B1.2 W1.1 W1.2\n");
}

// Groups of unequal size: none smaller than the number of ranks, so that nobody waits for the next
// chunk.
TEST(Schedules, RaggedGroups) {
  EXPECT_EQ(print(forward_only(2, 4, 5)),
            "schedule forward stages=4 micros=5\n"
            "rank 0: F0.0 F0.1 F0.2 F2.0 F2.1 F2.2 F0.3 F0.4 F2.3 F2.4\n"
            "rank 1: F1.0 F1.1 F1.2 F3.0 F3.1 F3.2 F1.3 F1.4 F3.3 F3.4\n");
}

TEST(Schedules, TransfersAndTies) {
  const Schedule s = one_f_one_b(2, 2);
  const std::vector<Timed> turns = simulate(
      s, [](const Turn& t) { return t.work == Work::forward ? 1.0 : 2.0; }, 0.25);
  std::string order;
  for (const Timed& t : turns)
    order += name(t.turn) + "@" + std::to_string(t.start).substr(0, 4) + " ";
  EXPECT_EQ(order,
            "F0.0@0.00 F0.1@1.00 F1.0@1.25 B1.0@2.25 F1.1@4.25 B0.0@4.50 B1.1@5.25 B0.1@7.50 ");
  EXPECT_NEAR(bubble(turns, 2), 1 - 12 / (2 * 9.5), 1e-12);
  EXPECT_EQ(bubble({}, 2), 0);
  EXPECT_EQ(bubble(simulate(s, [](const Turn&) { return 0.0; }), 2), 0);
  EXPECT_THROW(simulate(s, [](const Turn&) { return -1.0; }), Error);
}

// The last batch of an epoch may have fewer micro-batches: what is left of any schedule can run.
TEST(Schedules, WithFewerMicroBatches) {
  for (const Schedule& s : {gpipe(3, 6, 5), one_f_one_b(4, 6), interleaved(2, 3, 7), zb_h1(3, 5)})
    for (int micros = 1; micros <= s.micros + 1; ++micros) {
      const Schedule fewer = first_micros(s, micros);
      EXPECT_EQ(fewer.micros, std::min(micros, s.micros));
      EXPECT_NO_THROW(check(fewer)) << s.name << " " << micros;
      EXPECT_EQ(homes(fewer), homes(s));
    }
}

// Inference where training has its stages: forth and back over two ranks, or any way.
TEST(Schedules, InferenceFollowsTheHomes) {
  for (const std::vector<int>& home :
       {std::vector<int>{0, 1, 1, 0}, {1, 0}, {2, 0, 1}, {0, 0, 1, 1}}) {
    const int ranks = *std::max_element(home.begin(), home.end()) + 1;
    for (int micros = 1; micros < 6; ++micros) {
      const Schedule s = forward_only(ranks, home, micros);
      EXPECT_NO_THROW(check(s));
      EXPECT_EQ(homes(s), home);
    }
  }
}

TEST(Schedules, BuildersRefuseSizes) {
  const auto said = [](auto build) -> std::string {
    try {
      build();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind, ErrorKind::usage);
      return e.what();
    }
    return "nothing";
  };
  const auto has = [](const std::string& text, const std::string& words) {
    return text.find(words) != text.npos;
  };
  const std::string both = said([] { gpipe(0, 4, -1); });
  EXPECT_TRUE(has(both, "ranks = 0 is not from 1 to 1024") &&
              has(both, "micro-batches = -1 is not from 1 to 4096"))
      << both;
  EXPECT_TRUE(has(said([] { gpipe(2, 3, 1); }), "3 stages do not spread evenly over 2 ranks"));
  EXPECT_TRUE(
      has(said([] { interleaved(4, 0, 1); }), "chunks = 0 stages a rank are not from 1 to 1024"));
  EXPECT_TRUE(has(said([] { interleaved(4, 2147483647, 1); }), "chunks = 2147483647"));
  EXPECT_TRUE(has(said([] { one_f_one_b(1025, 1); }), "ranks = 1025"));
  EXPECT_TRUE(has(said([] { zb_h1(1024, 4096); }), "12582912 turns are more than 1000000"));
}

}  // namespace
}  // namespace tessera::transforms::schedules_test
