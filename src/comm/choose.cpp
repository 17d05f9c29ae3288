#include "comm/choose.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/threads.h"
#include "comm/shared.h"

namespace tessera::comm {

namespace {

// The base itself, and why. node: where this rank's other groups share memory, if they do.
class Plain final : public Wrapped {
 public:
  Plain(std::unique_ptr<Comm> base, SharedEngine engine, Wrap wrap, std::shared_ptr<Node> node,
        std::string reason)
      : Wrapped(std::move(base), std::move(engine), std::move(wrap)),
        node_(std::move(node)),
        reason_(std::move(reason)) {}
  std::string describe() const override { return base().describe() + " (" + reason_ + ")"; }
  std::unique_ptr<Memory> allocate(std::int64_t shared, std::int64_t own) override {
    return node_ ? node_->allocate(shared, own) : Wrapped::allocate(shared, own);
  }

 private:
  std::shared_ptr<Node> node_;
  std::string reason_;
};

// The parts that all groups of a world have in common.
struct Context : std::enable_shared_from_this<Context> {
  Context(Choice c, std::shared_ptr<Node> n, SharedEngine e)
      : choice(std::move(c)), node(std::move(n)), engine(std::move(e)) {}
  Choice choice;
  std::shared_ptr<Node> node;
  SharedEngine engine;

  Wrap wrapping() {
    return [context = shared_from_this()](std::unique_ptr<Comm> base) {
      return context->wrap(std::move(base));
    };
  }

  std::unique_ptr<Comm> wrap(std::unique_ptr<Comm> base) {
    std::vector<std::int32_t> ranks(static_cast<std::size_t>(base->size()));
    const std::int32_t mine = node->rank();
    base->all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(ranks)),
                     std::vector<std::int64_t>(ranks.size(), 4));
    if (std::all_of(ranks.begin(), ranks.end(), [&](int r) { return node->reaches(r); }))
      return make_shared(std::move(base), node, engine, {ranks.begin(), ranks.end()}, wrapping());
    if (choice.algorithm == Algorithm::shared)
      return std::make_unique<Plain>(std::move(base), engine, wrapping(), node,
                                     "its ranks are on several machines");
    return make_hierarchical(std::move(base), engine, node->machine_of(node->rank()), wrapping(),
                             choice.across);
  }
};

}  // namespace

Algorithm algorithm_named(std::string_view word) {
  constexpr std::array<std::string_view, 5> words = {"auto", "shared", "ring", "hierarchical",
                                                     "mpi"};
  const auto found = std::find(words.begin(), words.end(), word);
  CHECK(found != words.end(), "there is no algorithm " + std::string(word));
  return static_cast<Algorithm>(found - words.begin());
}

std::unique_ptr<Comm> choose(std::unique_ptr<Comm> base, const Choice& choice) {
  if (choice.algorithm == Algorithm::mpi || base->size() == 1) return base;
  if (choice.algorithm == Algorithm::ring) {
    const auto engine = std::make_shared<Engine>(base->size() > available_cores());
    return make_ring(std::move(base), engine, choice.across.ring);
  }
  std::string reason;
  std::shared_ptr<Node> node = Node::make(*base, choice.machine, reason);
  if (!node) {
    const Wrap as_it_is = [](std::unique_ptr<Comm> group) { return group; };
    return std::make_unique<Plain>(std::move(base), std::make_shared<Engine>(true), as_it_is,
                                   nullptr, "no shared memory: " + reason);
  }
  const auto engine = std::make_shared<Engine>(node->ranks_here() > available_cores());
  return std::make_shared<Context>(choice, std::move(node), engine)->wrap(std::move(base));
}

}  // namespace tessera::comm
