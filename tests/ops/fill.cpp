// Values of a case's operands, keyed by the case's name: the same numbers on every machine and in
// every dtype.
#include <cmath>
#include <map>
#include <mutex>
#include <tuple>

#include "base/rng.h"
#include "ops/cases.h"

namespace tessera::test {
namespace {

double rounded(double x) { return static_cast<float>(x); }

// Crops that reach over the border, boxes inside, half of them empty, every third picture mixed.
double draw_at(Key key, std::uint64_t row, int column) {
  const auto below = [&](std::uint64_t n) {
    return static_cast<double>(random_bits(key, row * 16 + static_cast<std::uint64_t>(column)) % n);
  };
  if (column < 2) return below(9) - 4;
  if (column == 2) return below(2);
  if (column == 11) return row % 3 == 0 ? below(1 << 20) : 1 << 20;
  const bool extent = column < 11 ? (column - 3) % 4 >= 2 : column >= 14;
  if (!extent) return below(7);
  return column < 11 && row % 2 == 0 ? 0 : column > 11 && row % 3 != 1 ? 0 : below(5);
}

double value_of(Fill fill, int classes, const ir::Shape& shape, Key key, std::int64_t i) {
  const auto at = static_cast<std::uint64_t>(i);
  switch (fill) {
    case Fill::normal:
      return tessera::normal(key, at);
    case Fill::wide:
      return 30 * tessera::normal(key, at);
    case Fill::positive:
      return 0.5 + std::abs(tessera::normal(key, at));
    case Fill::probabilities:
      return uniform(key, at) + 0.01;  // normalised below
    case Fill::labels:
      return static_cast<double>(random_bits(key, at) % static_cast<std::uint64_t>(classes));
    case Fill::log_sum:
      return 4 + 0.3 * tessera::normal(key, at);
    case Fill::masked:
      return i % shape.back() != 0 && uniform(key, at) < 0.4f ? -100.0 : 0.0;
    case Fill::rng:
      return i == 0 ? 42 : i == 1 ? 7 : 1000;
    case Fill::count:
      return 3;
    case Fill::rate:
      return 0.01;
    case Fill::ties:
      return static_cast<double>(random_bits(key, at) % 3);
    case Fill::one:
      return 1;
    case Fill::zero:
      return 0;
    case Fill::picture_draws:
      return draw_at(key, at / 16, static_cast<int>(at % 16));
  }
  return 0;
}

// The text says what an operand is drawn from; a case's name alone need not say it all.
using Drawing = std::tuple<std::string, std::size_t, Fill, int, ir::Shape>;

std::vector<float> draw(const Drawing& drawing) {
  const auto& [name, n, fill, classes, shape] = drawing;
  const Key key = Key{}.with(name).with(n);
  std::vector<float> out(static_cast<std::size_t>(ir::elements(shape)));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(value_of(fill, classes, shape, key, static_cast<std::int64_t>(i)));
  return out;
}

// Every mode asks for the operands of every case again, and drawing them is most of the work: they
// are drawn once, as long as there is room.
std::vector<float> drawn(const Drawing& drawing) {
  constexpr std::size_t most = 64 << 20;  // numbers, 256 MiB
  static std::mutex mutex;
  static std::map<Drawing, std::vector<float>> known;
  static std::size_t kept = 0;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(drawing); found != known.end()) return found->second;
  std::vector<float> fresh = draw(drawing);
  if (kept + fresh.size() > most) return fresh;
  kept += fresh.size();
  return known.emplace(drawing, std::move(fresh)).first->second;
}

std::vector<Array> drawn_operands(const Case& c, ir::DType element) {
  std::vector<Array> out;
  for (std::size_t n = 0; n < c.in.size(); ++n) {
    const Operand& o = c.in[n];
    Array a(!c.fixed && o.dtype == ir::DType::f32 ? element : o.dtype, o.shape);
    const std::vector<float> values = drawn({c.name, n, o.fill, c.classes, o.shape});
    for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, values[static_cast<std::size_t>(i)]);
    if (o.fill == Fill::probabilities)
      for (std::int64_t i = 0, width = o.shape.back(); i < a.size(); i += width) {
        double sum = 0;
        for (std::int64_t k = 0; k < width; ++k) sum += a[i + k];
        for (std::int64_t k = 0; k < width; ++k) a.set(i + k, rounded(a[i + k] / sum));
      }
    out.push_back(std::move(a));
  }
  return out;
}

}  // namespace

// A case asks for its operands many times over: those of the last question of each dtype are kept.
std::vector<Array> make_operands(const Case& c, ir::DType element) {
  struct Last {
    std::string name;
    std::vector<Array> operands;
  };
  static std::mutex mutex;
  static std::map<ir::DType, Last> last;
  const std::lock_guard lock(mutex);
  Last& of = last[element];
  if (of.name != c.name) of = {c.name, drawn_operands(c, element)};
  return of.operands;
}

ir::Attrs attrs_for(const Case& c, ir::DType element) {
  ir::Attrs attrs = c.attrs;
  if (c.fixed) return attrs;
  const auto change = [&](ir::DType& dtype) {
    if (dtype == ir::DType::f32) dtype = element;
  };
  if (auto* cast = std::get_if<ir::Cast>(&attrs)) change(cast->to);
  if (auto* constant = std::get_if<ir::Constant>(&attrs)) change(constant->dtype);
  if (auto* mask = std::get_if<ir::WindowMask>(&attrs)) change(mask->dtype);
  if (auto* normalise = std::get_if<ir::Normalise>(&attrs)) change(normalise->to);
  if (auto* augment = std::get_if<ir::Augment>(&attrs)) change(augment->to);
  if (auto* contract = std::get_if<ir::Contract>(&attrs); contract && contract->out)
    change(*contract->out);
  if (auto* sum = std::get_if<ir::Sum>(&attrs); sum && sum->out) change(*sum->out);
  return attrs;
}

Array make_normal(ir::DType dtype, const ir::Shape& shape, const std::string& name) {
  Array a(dtype, shape);
  for (std::int64_t i = 0; i < a.size(); ++i)
    a.set(i, rounded(tessera::normal(Key{}.with(name), static_cast<std::uint64_t>(i))));
  return a;
}

}  // namespace tessera::test
