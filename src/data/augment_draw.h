// The random numbers of one augmentation of one sample, in the order they are asked for.
// Convention: keyed by (seed, name of the augmentation, epoch, position), so that neither threads,
// ranks nor other augmentations matter.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/rng.h"
#include "data/transform.h"

namespace tessera::data {

class Draw {
 public:
  explicit Draw(Key key) : key_(key) {}
  Draw(const SampleKey& sample, std::string_view stream)
      : key_(Key{sample.seed}
                 .with(stream)
                 .with(static_cast<std::uint64_t>(sample.epoch))
                 .with(static_cast<std::uint64_t>(sample.position))) {}

  // In (0, 1), 53 bits.
  double uniform() {
    return (static_cast<double>(random_bits(key_, next_++) >> 11) + 0.5) * 0x1.0p-53;
  }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // 0 .. n-1.
  int below(int n) {
    return static_cast<int>(((random_bits(key_, next_++) >> 32) * static_cast<std::uint64_t>(n)) >>
                            32);
  }
  bool coin() { return random_bits(key_, next_++) & 1; }
  Key key() const { return key_; }

 private:
  Key key_;
  std::uint64_t next_ = 0;
};

}  // namespace tessera::data
