#include "session/init.h"

#include <cmath>

#include "base/check.h"
#include "base/rng.h"

namespace tessera::run {
namespace {

// torch.nn.init.trunc_normal_ cuts at -2 and 2 whatever the standard deviation is: absolute values,
// not multiples of it.
constexpr double cut = 2.0;

// Rejection gives the exact distribution; attempt k is a key of its own, so elements stay
// independent of each other.
double truncated_normal(Key key, std::uint64_t element, double std) {
  for (std::uint64_t attempt = 0;; ++attempt)
    if (const double x = std * normal(key.with(attempt), element); std::abs(x) <= cut) return x;
}

}  // namespace

ParamSource initial_weights(std::uint64_t seed) {
  return [seed](const models::Param& param) {
    using models::Init;
    const auto count = static_cast<std::size_t>(ir::elements(param.shape));
    const double scale = param.init.scale;
    const Key key = Key{}.with(seed).with("init").with(param.name);
    std::vector<double> out(count, param.init.kind == Init::ones ? 1.0 : 0.0);
    switch (param.init.kind) {
      case Init::zeros:
      case Init::ones:
        break;
      case Init::normal:
        for (std::size_t i = 0; i < count; ++i) out[i] = scale * normal(key, i);
        break;
      case Init::truncated_normal:
        CHECK(scale < 100 * cut, param.name + ": rejection needs a cut that is not rare");
        for (std::size_t i = 0; i < count; ++i) out[i] = truncated_normal(key, i, scale);
        break;
      case Init::uniform:
        for (std::size_t i = 0; i < count; ++i)
          out[i] = scale * (2.0 * static_cast<double>(uniform(key, i)) - 1.0);
        break;
    }
    return out;
  };
}

}  // namespace tessera::run
