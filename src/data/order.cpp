#include "data/order.h"

#include <numeric>
#include <utility>

#include "base/rng.h"

namespace tessera::data {

// Fisher and Yates; the remainder's bias is below samples / 2^64.
std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t samples) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), 0);
  const Key key = Key{seed}.with("order").with(static_cast<std::uint64_t>(epoch));
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_bits(key, i) % i]);
  return order;
}

}  // namespace tessera::data
