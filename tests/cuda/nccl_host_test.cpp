// This tries what of NCCL can be tried without a card: how a job decides for or against it, what it
// says then, how ids are exchanged, and the test library's own part on the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

#include "base/check.h"
#include "comm/comm.h"
#include "cuda/messages.h"
#include "exec/cuda/cuda.h"
#include "exec/cuda/kernel.h"
#include "exec/cuda/nccl/message_log.h"
#include "exec/cuda/nccl/nccl.h"
#include "exec/cuda/nccl/stalls.h"
#include "ir/attrs.h"
#include "plan/plan.h"
#include "ranks/carrier.h"

namespace tessera::exec::cuda::nccl_host_test {
namespace {

using run::Carriage;
using run::choose_carrier;
using run::RankCard;

config::Config job(const std::string& comm) {
  config::Config c;
  c.run.device = "cuda";
  c.parallel.comm = comm;
  return c;
}
RankCard rank_on(const std::string& host, const std::string& card) {
  return {host, card, "", "2.28.9"};
}

// For as long as it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

Error refusal(const std::string& comm, const std::vector<RankCard>& all) {
  try {
    choose_carrier(job(comm), all);
  } catch (const Error& e) {
    return e;
  }
  return Error(ErrorKind::internal, "(accepted)");
}

TEST(CudaCarrier, IsNcclWhereEveryRankHasACard) {
  const std::vector<RankCard> apart = {rank_on("a", "x"), rank_on("a", "y"), rank_on("b", "x")};
  for (const char* comm : {"auto", "nccl"}) {
    const Carriage taken = choose_carrier(job(comm), apart);
    EXPECT_EQ(taken.by, Carrier::nccl) << comm;
    EXPECT_EQ(taken.text, "NCCL 2.28.9");
  }
  for (const char* comm : {"local", "mpi"})
    EXPECT_EQ(choose_carrier(job(comm), apart).by, Carrier::host) << comm;
  EXPECT_EQ(choose_carrier(job("nccl"), {rank_on("a", "x")}).by, Carrier::host);  // nothing crosses
  config::Config on_cores = job("auto");
  on_cores.run.device = "cpu";
  EXPECT_EQ(choose_carrier(on_cores, apart).text, "");
}

TEST(CudaCarrier, RanksThatShareACardGoThroughTheHost) {
  const std::vector<RankCard> shared = {rank_on("a", "x"), rank_on("a", "y"), rank_on("a", "x")};
  const Carriage taken = choose_carrier(job("auto"), shared);
  EXPECT_EQ(taken.by, Carrier::host);
  EXPECT_NE(taken.text.find("ranks 0 and 2 share a card of a"), std::string::npos) << taken.text;
  const Error refused = refusal("nccl", shared);
  EXPECT_EQ(refused.exit_code(), 2);
  EXPECT_NE(refused.message.find("ranks 0 and 2 share a card of a"), std::string::npos);
  EXPECT_NE(refused.hint.find("--comm mpi"), std::string::npos) << refused.hint;
  const Variable waived(run::shared_card_variable, "1");
  EXPECT_EQ(choose_carrier(job("nccl"), shared).by, Carrier::nccl);
}

TEST(CudaCarrier, WhatIsMissingIsNamedWithItsRank) {
  std::vector<RankCard> all = {rank_on("a", "x"), rank_on("b", "x")};
  all[1].without_nccl = "NCCL was not found: looked for libnccl.so.2";
  all[1].version = "";
  const Carriage taken = choose_carrier(job("auto"), all);
  EXPECT_EQ(taken.by, Carrier::host);
  EXPECT_NE(taken.text.find("rank 1 (b) has none: NCCL was not found"), std::string::npos);
  const Error refused = refusal("nccl", all);
  EXPECT_EQ(refused.exit_code(), 10);
  EXPECT_NE(refused.message.find("rank 1 (b)"), std::string::npos) << refused.message;
  all[1] = {"b", "x", "", "2.20.5"};
  EXPECT_NE(refusal("nccl", all).message.find("rank 1 (b) has 2.20.5"), std::string::npos);
}

TEST(CudaCarrier, EncodedGradientsGoThroughTheHost) {
  config::Config c = job("auto");
  const std::vector<RankCard> apart = {rank_on("a", "x"), rank_on("a", "y")};
  c.parallel.compress = "int8";
  EXPECT_NE(choose_carrier(c, apart).text.find("parallel.compress = int8"), std::string::npos);
  c.parallel.compress = "powersgd=4";  // ordinary tensors
  EXPECT_EQ(choose_carrier(c, apart).by, Carrier::nccl);
}

TEST(CudaNccl, TheLibraryCanBeNamed) {
  EXPECT_EQ(nccl_files(), (std::vector<std::string>{"libnccl.so.2", "libnccl.so"}));
  const Variable named("TESSERA_NCCL_LIBRARY", "/nowhere/libabsent.so");
  EXPECT_EQ(nccl_files(), std::vector<std::string>{"/nowhere/libabsent.so"});
}

TEST(CudaNccl, WhatIsMissingIsASentence) {
  if (nccl_missing().empty())
    EXPECT_NE(nccl_version().find('.'), std::string::npos);
  else
    EXPECT_NE(nccl_missing().find("NCCL"), std::string::npos) << nccl_missing();
}

NcclId id_of(int number) {
  NcclId out{};
  out.fill(static_cast<std::byte>(number));
  return out;
}

TEST(CudaNccl, TheFirstRankMakesTheId) {
  std::mutex mutex;
  std::set<std::byte> seen;
  int made = 0;
  comm::run_local(3, [&](comm::Comm& world) {
    const NcclId id = agree_on_id(world, [&] {
      const std::lock_guard lock(mutex);
      ++made;
      return id_of(7 + world.rank());
    });
    const std::lock_guard lock(mutex);
    seen.insert(id[0]);
    seen.insert(id[127]);
  });
  EXPECT_EQ(made, 1);
  EXPECT_EQ(seen, std::set<std::byte>{std::byte{7}});
}

TEST(CudaNccl, EveryPairHasAnIdOfItsSender) {
  comm::run_local(3, [&](comm::Comm& world) {
    const int me = world.rank();
    int made = 0;
    std::vector<bool> sends(3);
    for (int to : {me - 1, me + 1})
      if (to >= 0 && to < 3) sends[static_cast<std::size_t>(to)] = true;
    const auto ids = agree_on_pairs(world, sends, [&] { return id_of(10 * me + ++made); });
    EXPECT_EQ(made, me == 1 ? 2 : 1);
    EXPECT_EQ(ids[0][1], id_of(1));
    EXPECT_EQ(ids[1][0], id_of(11));
    EXPECT_EQ(ids[1][2], id_of(12));
    EXPECT_EQ(ids[2][1], id_of(21));
  });
}

TEST(CudaNccl, AnIdThatCannotBeMadeEndsAllRanks) {
  std::atomic<int> refused = 0;
  comm::run_local(3, [&](comm::Comm& world) {
    try {
      agree_on_id(world, []() -> NcclId { throw Error(ErrorKind::device, "no network here"); });
    } catch (const Error& e) {
      refused +=
          e.kind == ErrorKind::device && e.message.find("no network here") != std::string::npos;
    }
  });
  EXPECT_EQ(refused, 3);
}

// A heartbeat tells of a message when the card is in it, and moves only when the card does.
TEST(CudaNccl, TheHeartbeatTellsWhatTheCardWaitsIn) {
  const std::unique_ptr<comm::Comm> self = comm::make_self();
  comm::Heartbeat heartbeat;
  self->watch(&heartbeat, "dp", 4);
  MessageLog log(*self, heartbeat.join("nccl dp", 4));
  log.posted(comm::Verb::all_reduce, 100, "grad.first");
  log.posted(comm::Verb::all_gather, 50, "weights");
  EXPECT_EQ(self->traffic()[comm::Verb::all_reduce].bytes, 100);
  EXPECT_FALSE(log.look(0, 0));  // the card computes
  EXPECT_FALSE(log.waits());
  EXPECT_EQ(heartbeat.look().groups[1].entered, 0u);
  EXPECT_TRUE(log.look(1, 0));
  ASSERT_TRUE(log.waits_for_all());
  log.note_wait();
  const comm::Look first = heartbeat.look();
  ASSERT_TRUE(first.waits);
  EXPECT_EQ(first.waits->verb, comm::Verb::all_reduce);
  EXPECT_EQ(first.waits->number, 1u);
  EXPECT_EQ(first.waits->scope, "grad.first");
  EXPECT_EQ(first.groups[1].name, "nccl dp");
  EXPECT_EQ(first.groups[1].color, 4);
  EXPECT_FALSE(log.look(1, 0));
  EXPECT_TRUE(log.look(2, 1));  // out of the first, in the second
  EXPECT_EQ(heartbeat.look().left->number, 1u);
  EXPECT_TRUE(log.waits());
  EXPECT_TRUE(log.look(2, 2));
  EXPECT_FALSE(log.waits());
  EXPECT_FALSE(heartbeat.look().waits);
  EXPECT_EQ(heartbeat.look().groups[1].left, 2u);
}

// A rank that is inside a call of the driver notes nothing; the watchdog asks the counts of the
// card.
TEST(CudaNccl, AWatchdogSeesWhatTheRankHasNotNoted) {
  const std::unique_ptr<comm::Comm> self = comm::make_self();
  comm::Heartbeat heartbeat, other;
  self->watch(&heartbeat, "dp", 4);
  MessageLog log(*self, heartbeat.join("nccl dp", 4));
  for (const char* scope : {"first", "second", "third"})
    log.posted(comm::Verb::all_reduce, 8, scope);
  EXPECT_TRUE(log.look(1, 0));
  const auto told = [&](std::uint64_t begun, std::uint64_t ended) {
    comm::Look look = heartbeat.look();
    log.tell(heartbeat, look, begun, ended);
    return look;
  };
  const comm::Look in_first = told(1, 0);
  ASSERT_TRUE(in_first.waits);
  EXPECT_EQ(in_first.waits->number, 1u);
  const comm::Look in_third = told(3, 2);
  ASSERT_TRUE(in_third.waits);
  EXPECT_EQ(in_third.waits->number, 3u);
  EXPECT_EQ(in_third.waits->scope, "third");
  EXPECT_EQ(in_third.groups[1].entered, 3u);
  EXPECT_EQ(in_third.groups[1].left, 2u);
  EXPECT_FALSE(told(3, 3).waits);
  EXPECT_EQ(heartbeat.look().groups[1].entered, 1u);  // nothing was noted meanwhile
  comm::Look of_other = other.look();
  log.tell(other, of_other, 3, 3);
  EXPECT_TRUE(of_other.groups.empty());
  // The card moved a moment ago, however long the rank has noted nothing.
  comm::Look look = heartbeat.look();
  look.idle_s = 100;
  log.tell(heartbeat, look, 4, 3);
  EXPECT_LT(look.idle_s, 50);
}

TEST(CudaNccl, AMessageBetweenStagesIsNoOperationOfAll) {
  const std::unique_ptr<comm::Comm> self = comm::make_self();
  comm::Heartbeat heartbeat;
  self->watch(&heartbeat, "pp");
  MessageLog log(*self, heartbeat.join("nccl p2p", 0));
  log.posted(comm::Verb::recv, 8, "x");
  EXPECT_TRUE(log.look(1, 0));
  EXPECT_TRUE(log.waits());
  EXPECT_FALSE(log.waits_for_all());
  EXPECT_EQ(heartbeat.look().groups[1].entered, 0u);
}

TEST(CudaNccl, AWaitIsSharedOutToTheMessagesThatEndInIt) {
  const auto text = [](const std::vector<Timeline::Span>& spans) {
    std::string out;
    for (const Timeline::Span& s : spans) {
      EXPECT_EQ(s.kind, Timeline::wait);
      out += std::to_string(s.step) + ":" + std::to_string(static_cast<int>(s.start)) + "-" +
             std::to_string(static_cast<int>(s.end)) + " ";
    }
    return out;
  };
  EXPECT_EQ(text(waits_in(10, 20, {{7, 15}})), "7:10-20 ");
  EXPECT_EQ(text(waits_in(10, 20, {{9, 19}, {3, 14}, {5, 2}})), "3:10-14 9:14-20 ");
  EXPECT_EQ(text(waits_in(10, 20, {{3, 1}, {4, 2}})), "4:10-20 ");
  EXPECT_EQ(text(waits_in(10, 10, {{3, 1}})), "");
  EXPECT_EQ(text(waits_in(10, 20, {})), "");
}

// The programs that the tests on a card run can be planned.
TEST(CudaNccl, MessagesOfOneRankArePlanned) {
  const auto crossing = [](const plan::Plan& plan, int stream) {
    return std::count_if(plan.steps.begin(), plan.steps.end(), [&](const plan::Step& step) {
      return plan::crosses_ranks(step.op) && step.stream == stream;
    });
  };
  const plan::Target target = cuda::target(1);
  const plan::Plan sums = plan::lower(test::sums_under_way(), 0, target, true);
  EXPECT_EQ(crossing(sums, 1), 3);
  for (const bool overlap : {false, true}) {
    const plan::Plan all = plan::lower(test::messages(ir::DType::f32, {5, 7}), 0, target, overlap);
    EXPECT_EQ(crossing(all, 0) + crossing(all, 1), 6);
  }
}

// Where parts do not lie together they are put in order on the card, which takes room.
TEST(CudaNccl, RoomForPartsIsPlanned) {
  const auto type = [](ir::Shape shape) { return ir::Type{ir::DType::f32, std::move(shape), {}}; };
  const ir::Type part = type({4, 6}), wide = type({4, 12}), tall = type({8, 6});
  const auto asked = [](ir::Op op, const ir::Collective& how, const ir::Type& in,
                        const ir::Type& out) {
    return kernel(op).workspace(how, std::span(&in, 1), std::span(&out, 1), Limits{});
  };
  const ir::Collective inner{.axis = "tp", .dim = 1}, outer{.axis = "tp", .dim = 0},
      both{.axis = "sp", .dim = 1, .from = 0};
  EXPECT_EQ(asked(ir::Op::all_gather, inner, part, wide), 256);
  EXPECT_EQ(asked(ir::Op::all_gather, outer, part, tall), 0);
  EXPECT_EQ(asked(ir::Op::reduce_scatter, inner, wide, part), 256);
  EXPECT_EQ(asked(ir::Op::reduce_scatter, outer, tall, part), 0);
  EXPECT_EQ(asked(ir::Op::all_to_all, both, wide, tall), 256);
}

}  // namespace
}  // namespace tessera::exec::cuda::nccl_host_test
