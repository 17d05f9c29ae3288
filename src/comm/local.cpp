// The local back end: ranks are threads of this process and read each other's buffers in place.
// Convention: a unit of work writes bytes that no other unit of the same operation reads, so units
// may run at once and in any order.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "comm/comm.h"
#include "comm/counts.h"
#include "comm/reduce.h"
#include "comm/rendezvous.h"

namespace tessera::comm {

namespace {

using std::int64_t;

thread_local int rank_of_thread = -1;

class LocalOperation final : public Operation {
 public:
  LocalOperation(std::shared_ptr<World> world, std::shared_ptr<Rendezvous> rendezvous, int rank)
      : world_(std::move(world)),
        rendezvous_(std::move(rendezvous)),
        rank_(rank),
        exceptions_(std::uncaught_exceptions()) {}
  ~LocalOperation() override {
    World::Lock lock = world_->lock();
    world_->leave(lock, *rendezvous_, rank_, std::uncaught_exceptions() > exceptions_);
  }
  LocalOperation(const LocalOperation&) = delete;
  LocalOperation& operator=(const LocalOperation&) = delete;

  bool done() override {
    World::Lock lock = world_->lock();
    world_->work(lock, *rendezvous_, 1);
    if (rendezvous_->complete()) return true;
    world_->check_alive(rank_);
    return false;
  }
  void wait() override {
    World::Lock lock = world_->lock();
    world_->wait(lock, *rendezvous_, rank_);
  }

 private:
  std::shared_ptr<World> world_;
  std::shared_ptr<Rendezvous> rendezvous_;
  int rank_, exceptions_;
};

class LocalComm final : public Comm {
 public:
  LocalComm(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->ranks.size()); }
  std::unique_ptr<Comm> split(int color, int key) override;
  std::string describe() const override { return "local"; }
  void abort(const std::string& reason, int) override {
    World::Lock lock = group_->world->lock();
    group_->world->fail(world_rank(), reason, nullptr);
  }
  std::string stopped() const override {
    const World::Lock lock = group_->world->lock();
    return group_->world->failure();
  }

 protected:
  Pending do_all_reduce(Bytes data, ir::DType dtype, Reduction how) override;
  Pending do_reduce_scatter(ConstBytes in, Bytes out, Counts counts, ir::DType dtype,
                            Reduction how) override;
  Pending do_all_gather(ConstBytes in, Bytes out, Counts counts) override;
  Pending do_all_to_all(ConstBytes in, Counts send_counts, Bytes out, Counts recv_counts) override;
  Pending do_broadcast(Bytes data, int root) override;
  Pending do_send(ConstBytes data, int to, int tag) override {
    return exchange({.in = data}, 0, rank_, to, tag);
  }
  Pending do_recv(Bytes data, int from, int tag) override {
    return exchange({.out = data}, 1, from, rank_, tag);
  }
  Pending do_barrier() override {
    return meet({.what = "barrier"}, {}, 1, [](Rendezvous&, int) {});
  }

 private:
  std::shared_ptr<Group> group_;
  int rank_;

  int world_rank() const { return group_->ranks[static_cast<std::size_t>(rank_)]; }
  std::shared_ptr<Rendezvous> join(Call call, Entry entry, int units, Rendezvous::Work work);
  Pending meet(Call call, Entry entry, int units, Rendezvous::Work work) {
    return std::make_unique<LocalOperation>(
        group_->world, join(std::move(call), std::move(entry), units, std::move(work)),
        world_rank());
  }
  Pending exchange(Entry entry, int side, int from, int to, int tag);
};

std::string text_of(const Call& call) {
  std::string text(call.what);
  if (call.root) text += " from " + std::to_string(call.root);
  if (!call.counts.empty())
    text += " of " +
            std::to_string(std::accumulate(call.counts.begin(), call.counts.end(), int64_t{0})) +
            " bytes";
  return text + " as " + std::string(ir::name(call.dtype));
}

// A rank must be sent what it expects; the later of the two says so.
void check_parts(const Rendezvous& rendezvous, const Entry& mine, int rank) {
  const auto part = [](const std::vector<int64_t>& at, std::size_t i) { return at[i + 1] - at[i]; };
  const auto me = static_cast<std::size_t>(rank);
  for (std::size_t i = 0; i < rendezvous.entries.size(); ++i) {
    const Entry& other = i == me ? mine : rendezvous.entries[i];
    if (i != me && !other.here) continue;
    const std::string peer =
        "all_to_all between ranks " + std::to_string(rank) + " and " + std::to_string(i) + ": ";
    CHECK(part(mine.in_at, i) == part(other.out_at, me), peer + "sent and expected bytes differ");
    CHECK(part(mine.out_at, i) == part(other.in_at, me), peer + "sent and expected bytes differ");
  }
}

std::shared_ptr<Rendezvous> LocalComm::join(Call call, Entry entry, int units,
                                            Rendezvous::Work work) {
  World& world = *group_->world;
  World::Lock lock = world.lock();
  world.check_alive(world_rank());
  const int64_t number = group_->started[static_cast<std::size_t>(rank_)]++;
  std::shared_ptr<Rendezvous> rendezvous = group_->open[number];
  if (!rendezvous) {
    rendezvous = std::make_shared<Rendezvous>(call, group_->ranks, std::move(work), units);
    group_->open[number] = rendezvous;
  }
  CHECK(rendezvous->call == call, "rank " + std::to_string(rank_) + " called " + text_of(call) +
                                      " where others called " + text_of(rendezvous->call) +
                                      " (operation " + std::to_string(number) + " of the group)");
  if (call.what == name(Verb::all_to_all)) check_parts(*rendezvous, entry, rank_);
  if (rendezvous->arrived + 1 == size()) group_->open.erase(number);
  world.enter(lock, *rendezvous, rank_, std::move(entry));
  return rendezvous;
}

// A message is a rendezvous of two: place 0 sends, place 1 receives.
Pending LocalComm::exchange(Entry entry, int side, int from, int to, int tag) {
  World& world = *group_->world;
  World::Lock lock = world.lock();
  world.check_alive(world_rank());
  auto& queue = group_->mail[{from, to, tag}];
  const auto waits_for_me = [&](const auto& m) {
    return !m->entries[static_cast<std::size_t>(side)].here;
  };
  std::shared_ptr<Rendezvous> rendezvous;
  if (!queue.empty() && waits_for_me(queue.front())) {
    rendezvous = std::move(queue.front());
    queue.pop_front();
    if (queue.empty()) group_->mail.erase({from, to, tag});
    const Entry& other = rendezvous->entries[static_cast<std::size_t>(1 - side)];
    const std::size_t sent = side == 0 ? entry.in.size() : other.in.size(),
                      expected = side == 1 ? entry.out.size() : other.out.size();
    CHECK(sent == expected, "message from rank " + std::to_string(from) + " to rank " +
                                std::to_string(to) + " with tag " + std::to_string(tag) + ": " +
                                std::to_string(sent) + " bytes sent, " + std::to_string(expected) +
                                " expected");
  } else {
    const auto world_rank_of = [&](int rank) {
      return group_->ranks[static_cast<std::size_t>(rank)];
    };
    const auto deliver = [](Rendezvous& m, int) {
      move_bytes(m.entries[1].out.data(), m.entries[0].in.data(),
                 static_cast<int64_t>(m.entries[0].in.size()));
    };
    const Call call{.what = name(side == 0 ? Verb::send : Verb::recv)};
    rendezvous = std::make_shared<Rendezvous>(
        call, std::vector<int>{world_rank_of(from), world_rank_of(to)}, deliver, 1);
    queue.push_back(rendezvous);
  }
  world.enter(lock, *rendezvous, side, std::move(entry));
  lock.unlock();
  return std::make_unique<LocalOperation>(group_->world, std::move(rendezvous), world_rank());
}

Pending LocalComm::do_all_reduce(Bytes data, ir::DType dtype, Reduction how) {
  // Unit u owns slice u of every rank's buffer: it reads the slices, adds them in rank order and
  // writes the sum to all.
  return meet({.what = name(Verb::all_reduce),
               .dtype = dtype,
               .how = how,
               .counts = {static_cast<int64_t>(data.size())}},
              {.out = data}, size(), [](Rendezvous& m, int unit) {
                const int64_t width = ir::size_of(m.call.dtype);
                const ir::Range slice =
                    ir::split(m.call.counts[0] / width, static_cast<int>(m.ranks.size()), unit);
                std::vector<std::byte*> at;
                for (const Entry& e : m.entries) at.push_back(e.out.data() + slice.begin * width);
                reduce(m.call.dtype, m.call.how,
                       std::vector<const std::byte*>(at.begin(), at.end()), at, slice.size);
              });
}

Pending LocalComm::do_reduce_scatter(ConstBytes in, Bytes out, Counts counts, ir::DType dtype,
                                     Reduction how) {
  return meet({.what = name(Verb::reduce_scatter),
               .dtype = dtype,
               .how = how,
               .counts = {counts.begin(), counts.end()}},
              {.in = in, .out = out, .in_at = offsets(counts)}, size(),
              [](Rendezvous& m, int unit) {
                const auto u = static_cast<std::size_t>(unit);
                std::vector<const std::byte*> from;
                for (const Entry& e : m.entries) from.push_back(e.in.data() + e.in_at[u]);
                std::byte* const to = m.entries[u].out.data();
                reduce(m.call.dtype, m.call.how, from, {&to, 1},
                       m.call.counts[u] / ir::size_of(m.call.dtype));
              });
}

Pending LocalComm::do_all_gather(ConstBytes in, Bytes out, Counts counts) {
  return meet(
      {.what = name(Verb::all_gather), .counts = {counts.begin(), counts.end()}},
      {.in = in, .out = out, .out_at = offsets(counts)}, size(), [](Rendezvous& m, int unit) {
        const Entry& mine = m.entries[static_cast<std::size_t>(unit)];
        for (std::size_t r = 0; r < m.entries.size(); ++r)
          move_bytes(mine.out.data() + mine.out_at[r], m.entries[r].in.data(), m.call.counts[r]);
      });
}

Pending LocalComm::do_all_to_all(ConstBytes in, Counts send_counts, Bytes out, Counts recv_counts) {
  return meet({.what = name(Verb::all_to_all)},
              {.in = in, .out = out, .in_at = offsets(send_counts), .out_at = offsets(recv_counts)},
              size(), [](Rendezvous& m, int unit) {
                const auto u = static_cast<std::size_t>(unit);
                const Entry& mine = m.entries[u];
                for (std::size_t r = 0; r < m.entries.size(); ++r)
                  move_bytes(mine.out.data() + mine.out_at[r],
                             m.entries[r].in.data() + m.entries[r].in_at[u],
                             mine.out_at[r + 1] - mine.out_at[r]);
              });
}

Pending LocalComm::do_broadcast(Bytes data, int root) {
  return meet(
      {.what = name(Verb::broadcast), .root = root, .counts = {static_cast<int64_t>(data.size())}},
      {.out = data}, size(), [](Rendezvous& m, int unit) {
        const Entry& source = m.entries[static_cast<std::size_t>(m.call.root)];
        move_bytes(m.entries[static_cast<std::size_t>(unit)].out.data(), source.out.data(),
                   m.call.counts[0]);
      });
}

std::unique_ptr<Comm> LocalComm::split(int color, int key) {
  CHECK(color >= 0, "split: a color is negative: " + std::to_string(color));
  const auto form_groups = [world = group_->world](Rendezvous& m, int) {
    std::vector<std::size_t> order(m.entries.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](auto a, auto b) { return m.entries[a].key < m.entries[b].key; });
    std::map<int, std::shared_ptr<Group>> groups;
    m.groups.resize(m.entries.size());
    for (std::size_t r : order) {
      std::shared_ptr<Group>& group = groups[m.entries[r].color];
      if (!group) group = std::make_shared<Group>(Group{.world = world});
      group->ranks.push_back(m.ranks[r]);
      group->started.push_back(0);
      m.groups[r] = group;
    }
  };
  const std::shared_ptr<Rendezvous> rendezvous =
      join({.what = "split"}, {.color = color, .key = key}, 1, form_groups);
  LocalOperation(group_->world, rendezvous, world_rank()).wait();
  const std::shared_ptr<Group>& mine = rendezvous->groups[static_cast<std::size_t>(rank_)];
  const auto at = std::find(mine->ranks.begin(), mine->ranks.end(), world_rank());
  return std::make_unique<LocalComm>(mine, static_cast<int>(at - mine->ranks.begin()));
}

std::shared_ptr<Group> world_of(int ranks) {
  auto group = std::make_shared<Group>(
      Group{.world = std::make_shared<World>(ranks),
            .ranks = std::vector<int>(static_cast<std::size_t>(ranks)),
            .started = std::vector<int64_t>(static_cast<std::size_t>(ranks), 0)});
  std::iota(group->ranks.begin(), group->ranks.end(), 0);
  return group;
}

void run_rank(const std::shared_ptr<Group>& group, int rank,
              const std::function<void(Comm& world)>& body) {
  std::string reason;
  std::exception_ptr error;
  rank_of_thread = rank;
  try {
    LocalComm comm(group, rank);
    body(comm);
  } catch (const std::exception& e) {
    error = std::current_exception();
    reason = e.what();
  } catch (...) {
    error = std::current_exception();
    reason = "an exception of unknown type";
  }
  const World::Lock lock = group->world->lock();
  if (error) group->world->fail(rank, reason, error);
  group->world->end(rank);
}

}  // namespace

int thread_rank() { return rank_of_thread; }

std::unique_ptr<Comm> make_self() { return std::make_unique<LocalComm>(world_of(1), 0); }

void run_local(int ranks, const std::function<void(Comm& world)>& body) {
  CHECK(ranks > 0, "run_local: expected one rank or more, found " + std::to_string(ranks));
  const std::shared_ptr<Group> group = world_of(ranks);
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&group, &body, rank] { run_rank(group, rank, body); });
  } catch (const std::exception& error) {  // of threads, or of memory for them
    const Error full(ErrorKind::memory, "the system gave " + std::to_string(threads.size()) +
                                            " of " + std::to_string(ranks) +
                                            " threads for ranks: " + error.what());
    const World::Lock lock = group->world->lock();
    group->world->fail(static_cast<int>(threads.size()), full.what(),
                       std::make_exception_ptr(full));
  }
  for (std::thread& thread : threads) thread.join();
  const World::Lock lock = group->world->lock();
  group->world->rethrow();
}

}  // namespace tessera::comm
