// When a local rank stops, every other one hears of it wherever it waits, and the first error comes
// out of run_local. Convention: a hang is the failure that these tests look for; CTest's time limit
// turns it into one.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <thread>

#include "base/check.h"
#include "comm/checks.h"

namespace tessera::comm::failure_test {
namespace {

using Body = std::function<void(Comm&)>;

std::string error_of(int ranks, const Body& body, ErrorKind kind) {
  try {
    run_local(ranks, body);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

// Each way to wait for others; `group` is theirs alone or has the failing rank in it.
const std::map<std::string, Body>& waits() {
  using Sizes = std::vector<std::int64_t>;
  static const std::map<std::string, Body> all = {
      {"all_reduce",
       [](Comm& c) {
         std::vector<float> x(40000);
         c.all_reduce(bytes(x), ir::DType::f32);
       }},
      {"reduce_scatter",
       [](Comm& c) {
         const auto n = static_cast<std::size_t>(c.size());
         std::vector<float> x(n), y(1);
         c.reduce_scatter(const_bytes(x), bytes(y), Sizes(n, 4), ir::DType::f32);
       }},
      {"all_gather",
       [](Comm& c) {
         const auto n = static_cast<std::size_t>(c.size());
         std::vector<float> x(1), y(n);
         c.all_gather(const_bytes(x), bytes(y), Sizes(n, 4));
       }},
      {"all_to_all",
       [](Comm& c) {
         const auto n = static_cast<std::size_t>(c.size());
         std::vector<float> x(n), y(n);
         c.all_to_all(const_bytes(x), Sizes(n, 4), bytes(y), Sizes(n, 4));
       }},
      {"broadcast",
       [](Comm& c) {
         std::vector<float> x(9);
         c.broadcast(bytes(x), c.size() - 1);
       }},
      {"barrier", [](Comm& c) { c.barrier(); }},
      {"split", [](Comm& c) { (void)c.split(0, 0); }},
      {"send",
       [](Comm& c) {
         std::vector<float> x(9);
         c.send(const_bytes(x), c.size() - 1, 0);
       }},
      {"recv",
       [](Comm& c) {
         std::vector<float> x(9);
         c.recv(bytes(x), c.size() - 1, 0);
       }},
      {"done", [](Comm& c) {
         std::vector<float> x(9);
         const Pending p = c.start_all_reduce(bytes(x), ir::DType::f32);
         while (!p->done()) std::this_thread::yield();
       }}};
  return all;
}

void expect_told(Comm& comm, const Body& wait, const std::string& text, std::atomic<int>& told) {
  try {
    wait(comm);
    ADD_FAILURE() << "rank " << comm.rank() << " did not hear of it";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::rank_lost);
    EXPECT_EQ(error.message, text);
    ++told;
    throw;
  }
}

TEST(LocalFailure, WakesEveryVerbAndKeepsTheFirstError) {
  for (const auto& [verb, wait] : waits()) {
    SCOPED_TRACE(verb);
    std::atomic<int> told = 0;
    const std::string what = error_of(
        5,
        [&](Comm& comm) {
          if (comm.rank() == 4) throw Error(ErrorKind::data, "a bad picture");
          expect_told(comm, wait, "rank 4 stopped: a bad picture", told);
        },
        ErrorKind::data);
    EXPECT_EQ(what, "a bad picture");
    EXPECT_EQ(told, 4);
  }
}

TEST(LocalFailure, WakesSubgroupsToo) {
  for (const auto& [verb, wait] : waits()) {
    SCOPED_TRACE(verb);
    std::atomic<int> told = 0;
    error_of(
        6,
        [&](Comm& comm) {  // rank 0 waits in its group for rank 2, which waits for nobody; rank 1
                           // in a group that is whole but for rank 3
          const std::unique_ptr<Comm> group =
              comm.split(comm.rank() == 5 ? 2 : comm.rank() % 2, comm.rank());
          if (comm.rank() == 5) throw Error(ErrorKind::disk, "no room");
          if (comm.rank() >= 2)
            return expect_told(comm, waits().at("barrier"), "rank 5 stopped: no room", told);
          expect_told(*group, wait, "rank 5 stopped: no room", told);
        },
        ErrorKind::disk);
    EXPECT_EQ(told, 5);
  }
}

TEST(LocalFailure, AbortGivesTheReason) {
  std::atomic<int> told = 0;
  const std::string what = error_of(
      4,
      [&](Comm& comm) {
        if (comm.rank() == 1) {
          comm.abort("the user asked");
          EXPECT_THROW(comm.barrier(), Error);
          return;
        }
        expect_told(comm, waits().at("all_reduce"), "rank 1 stopped: the user asked", told);
      },
      ErrorKind::rank_lost);
  EXPECT_EQ(what, "rank 1 stopped: the user asked");
  EXPECT_EQ(told, 3);
}

TEST(LocalFailure, AnErrorAfterAbortIsTheFirstOne) {
  const auto body = [](Comm& comm) {
    if (comm.rank() == 0) comm.barrier();
    comm.abort("weights");
    throw Error(ErrorKind::weights, "no such file");
  };
  EXPECT_EQ(error_of(2, body, ErrorKind::weights), "no such file");
}

// Operations that an error leaves behind give their buffers up and do not hold the error back.
TEST(LocalFailure, PassesOperationsInFlight) {
  for (int failing = 0; failing < 3; ++failing) {
    const auto body = [&](Comm& comm) {
      std::vector<float> a(50000), b(50000), c(3);
      const Pending first = comm.start_all_reduce(bytes(a), ir::DType::f32);
      if (comm.rank() == failing) {
        const Pending second = comm.start_all_reduce(bytes(b), ir::DType::f32);
        const Pending message = comm.start_recv(bytes(c), (failing + 1) % 3, 0);
        throw Error(ErrorKind::nonfinite, "the loss is NaN");
      }
      first->wait();
      comm.all_reduce(bytes(b), ir::DType::f32);
      comm.barrier();
    };
    EXPECT_EQ(error_of(3, body, ErrorKind::nonfinite), "the loss is NaN");
  }
}

TEST(LocalFailure, ARankThatEndsEarlyIsMissed) {
  const auto body = [](Comm& comm) {
    if (comm.rank() != 2) comm.barrier();
  };
  EXPECT_EQ(error_of(3, body, ErrorKind::rank_lost),
            "rank 2 stopped: its program ended before this barrier");
}

TEST(LocalFailure, AnErrorCaughtTooLateStillEndsTheOthers) {
  const auto body = [](Comm& comm) {
    std::vector<float> a(5);
    if (comm.rank() == 1) {
      try {
        const Pending p = comm.start_all_reduce(bytes(a), ir::DType::f32);
        throw 1;
      } catch (int) {
      }
    } else {
      comm.all_reduce(bytes(a), ir::DType::f32);
      comm.barrier();
    }
  };
  EXPECT_THROW(run_local(2, body), Error);
}

TEST(LocalFailure, DifferentCallsAreNamed) {
  const auto verbs = [](Comm& comm) {
    std::vector<float> a(5);
    if (comm.rank() == 1) comm.barrier();
    comm.all_reduce(bytes(a), ir::DType::f32);
  };
  EXPECT_NE(error_of(2, verbs, ErrorKind::internal).find("where others called"), std::string::npos);
  const auto sizes = [](Comm& comm) {
    std::vector<float> a(comm.rank() ? 5 : 6);
    comm.all_reduce(bytes(a), ir::DType::f32);
  };
  EXPECT_NE(error_of(3, sizes, ErrorKind::internal)
                .find(" bytes as f32 where others called all_reduce of "),
            std::string::npos);
  const auto message = [](Comm& comm) {
    std::vector<float> a(comm.rank() ? 5 : 6);
    comm.rank() ? comm.send(const_bytes(a), 0, 4) : comm.recv(bytes(a), 1, 4);
  };
  EXPECT_NE(error_of(2, message, ErrorKind::internal).find("20 bytes sent, 24 expected"),
            std::string::npos);
  const auto parts = [](Comm& comm) {
    const std::vector<std::int64_t> sent = {4, 4}, expected = {4, comm.rank() ? 4 : 8};
    std::vector<float> a(2), b(comm.rank() ? 2 : 3);
    comm.all_to_all(const_bytes(a), sent, bytes(b), expected);
  };
  EXPECT_NE(error_of(2, parts, ErrorKind::internal).find("sent and expected bytes differ"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::comm::failure_test
