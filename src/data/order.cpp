#include "data/order.h"

#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace tessera::data {
namespace {

// Fisher and Yates; the remainder's bias is below size / 2^64.
void shuffle(std::vector<std::int64_t>& items, Key key) {
  for (std::size_t i = items.size(); i > 1; --i)
    std::swap(items[i - 1], items[random_bits(key, i) % i]);
}

// The samples of one class, in a new order each time they have all been drawn.
struct Pool {
  std::vector<std::int64_t> items;
  Key key;
  std::size_t drawn = 0;
  std::int64_t draw() {
    if (drawn % items.size() == 0) shuffle(items, key.with(drawn / items.size()));
    return items[drawn++ % items.size()];
  }
};

std::vector<std::int64_t> counts(std::span<const std::int32_t> labels, int classes) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(classes));
  for (const std::int32_t label : labels) {
    CHECK(label >= 0 && label < classes, "labels are classes");
    ++out[static_cast<std::size_t>(label)];
  }
  return out;
}

}  // namespace

std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch,
                                      std::int64_t samples) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), 0);
  shuffle(order, Key{seed}.with("order").with(static_cast<std::uint64_t>(epoch)));
  return order;
}

std::vector<std::int64_t> balanced_order(std::uint64_t seed, std::int64_t epoch,
                                         std::span<const std::int32_t> labels, int classes) {
  const Key key = Key{seed}.with("balanced").with(static_cast<std::uint64_t>(epoch));
  std::vector<Pool> pools(static_cast<std::size_t>(classes));
  for (std::size_t i = 0; i < labels.size(); ++i)
    pools.at(static_cast<std::size_t>(labels[i])).items.push_back(static_cast<std::int64_t>(i));
  std::vector<std::int64_t> turn;
  for (std::size_t k = 0; k < pools.size(); ++k) {
    pools[k].key = key.with("class").with(k);
    if (!pools[k].items.empty()) turn.push_back(static_cast<std::int64_t>(k));
  }
  std::vector<std::int64_t> order;
  order.reserve(labels.size());
  for (std::uint64_t round = 0; order.size() < labels.size(); ++round) {
    shuffle(turn, key.with("turn").with(round));
    for (std::size_t i = 0; i < turn.size() && order.size() < labels.size(); ++i)
      order.push_back(pools[static_cast<std::size_t>(turn[i])].draw());
  }
  return order;
}

std::vector<float> class_weights(std::span<const std::int32_t> labels, int classes) {
  const std::vector<std::int64_t> count = counts(labels, classes);
  double present = 0;
  for (const std::int64_t n : count) present += n > 0;
  std::vector<float> weights(count.size());
  for (std::size_t k = 0; k < count.size(); ++k)
    weights[k] = count[k] ? static_cast<float>(static_cast<double>(labels.size()) /
                                               (present * static_cast<double>(count[k])))
                          : 0.0f;
  return weights;
}

}  // namespace tessera::data
