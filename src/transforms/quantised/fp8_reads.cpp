#include "transforms/quantised/fp8_reads.h"

#include "ir/signature.h"

namespace tessera::transforms {

using namespace ir;

namespace {

constexpr std::int64_t granule = 16;

bool in_blocks(const Eqn& e) {
  return e.scope.starts_with("blocks.") || e.scope.find(".blocks.") != std::string::npos;
}

// The letters that are summed lie together at one end of the factor.
std::optional<FactorRead> read_of(const Eqn& e, std::size_t i, const std::string& summed) {
  const std::string letters = letters_in(std::get<Contract>(e.attrs).sig, static_cast<int>(i));
  if (letters.ends_with(summed)) return FactorRead{e.in[i], letters, 0};
  if (letters.starts_with(summed)) return FactorRead{e.in[i], letters, summed.size()};
  return {};
}

}  // namespace

std::optional<FactorReads> reads_in_blocks(const Program& program, const Eqn& e) {
  if (e.op != Op::contract || !in_blocks(e)) return {};
  const Contract& a = std::get<Contract>(e.attrs);
  if (program.type(e.in[0]).dtype != DType::bf16 || e.in.size() > 4) return {};
  const std::string x = letters_in(a.sig, 0), w = letters_in(a.sig, 1), y = letters_out(a.sig);
  std::string summed;
  for (const char c : x) {
    const bool in_w = w.find(c) != std::string::npos, in_y = y.find(c) != std::string::npos;
    if (in_w == in_y) return {};  // a batch, or a sum of x alone
    if (in_w) summed += c;
  }
  for (const char c : w)
    if (x.find(c) == std::string::npos && y.find(c) == std::string::npos) return {};
  const std::optional<FactorRead> left = read_of(e, 0, summed), right = read_of(e, 1, summed);
  if (!left || !right || summed.empty() || summed.size() == x.size() || summed.size() == w.size())
    return {};
  return FactorReads{*left, *right};
}

bool in_granules(const Program& program, const Eqn& e, const FactorReads& reads) {
  const std::string y = letters_out(std::get<Contract>(e.attrs).sig);
  for (const FactorRead& read : reads) {
    std::int64_t kept = 1, summed = 1;
    const Shape& shape = program.type(read.factor).shape;
    for (std::size_t i = 0; i < shape.size(); ++i)
      (y.find(read.letters[i]) != std::string::npos ? kept : summed) *= shape[i];
    if (kept % granule != 0 || summed % granule != 0 || kept == 0 || summed == 0) return false;
  }
  return true;
}

}  // namespace tessera::transforms
