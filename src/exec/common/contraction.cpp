#include "exec/common/contraction.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "exec/common/index.h"

namespace tessera::exec {
namespace {

using std::int64_t;

// Dense row-major strides of a tensor with these letters.
Strides strides_of(std::string_view letters, const Strides& extents) {
  Strides strides{};
  int64_t step = 1;
  for (std::size_t i = letters.size(); i-- > 0;) {
    const auto letter = static_cast<unsigned char>(letters[i]);
    strides[letter] += step;
    step *= extents[letter];
  }
  return strides;
}

Strides extents_of(const OperandLetters& sig, std::span<const ir::Shape> in) {
  CHECK(sig.in.size() == in.size(), "contract: operands do not match the signature");
  Strides extents{};
  for (std::size_t i = 0; i < in.size(); ++i) {
    CHECK(sig.in[i].size() == in[i].size(), "contract: operand " + std::to_string(i) + " '" +
                                                sig.in[i] + "' has shape " + ir::to_string(in[i]));
    for (std::size_t d = 0; d < in[i].size(); ++d)
      extents.at(static_cast<unsigned char>(sig.in[i][d])) = in[i][d];
  }
  return extents;
}

// Merges neighbours in `letters` that are one step apart in every given tensor; drops extents of
// one.
std::vector<Run> runs_of(const std::string& letters, const Strides& extents, const Strides& a,
                         const Strides& b, const Strides& c, std::span<const Strides> also) {
  std::vector<Run> runs;
  for (char letter : letters) {
    const auto l = static_cast<unsigned char>(letter);
    if (extents[l] == 1) continue;
    const auto follows = [&](const Strides& s) {
      return s[static_cast<unsigned char>(runs.back().letters.back())] == s[l] * extents[l];
    };
    if (!runs.empty() && follows(a) && follows(b) && follows(c) &&
        std::all_of(also.begin(), also.end(), follows)) {
      Run& run = runs.back();
      run = {.letters = run.letters + letter,
             .extent = run.extent * extents[l],
             .a = a[l],
             .b = b[l],
             .c = c[l]};
    } else {
      runs.push_back({.letters = std::string(1, letter),
                      .extent = extents[l],
                      .a = a[l],
                      .b = b[l],
                      .c = c[l]});
    }
  }
  return runs;
}

Run take(std::vector<Run>& runs, std::size_t i) {
  Run run = std::move(runs[i]);
  runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(i));
  return run;
}

std::size_t largest(const std::vector<Run>& runs) {
  const auto less = [](const Run& p, const Run& q) { return p.extent < q.extent; };
  return static_cast<std::size_t>(std::max_element(runs.begin(), runs.end(), less) - runs.begin());
}

int64_t steps(const std::vector<Run>& runs) {
  return std::accumulate(runs.begin(), runs.end(), int64_t{1},
                         [](int64_t n, const Run& run) { return n * run.extent; });
}

}  // namespace

int64_t Contraction::outer_steps() const { return steps(outer); }
int64_t Contraction::outer_k_steps() const { return steps(outer_k); }

Contraction analyse_contraction(std::string_view text, std::span<const ir::Shape> in) {
  const OperandLetters sig = parse_letters(text);
  const Strides extents = extents_of(sig, in);
  const std::string &x = sig.in[0], &w = sig.in[1];
  std::string x_only, w_only, batch, k_letters, single;
  std::string* last = nullptr;
  for (char letter : sig.out) {
    const bool in_x = has(x, letter), in_w = has(w, letter);
    std::string& kind = in_x == in_w ? batch : in_x ? x_only : w_only;
    kind += letter;
    if (extents[static_cast<unsigned char>(letter)] != 1) last = &kind;
  }
  bool empty = false;
  for (char letter : x + w) {
    if (has(sig.out + k_letters + single, letter)) continue;
    (has(x, letter) && has(w, letter) ? k_letters : single) += letter;
    empty |= extents[static_cast<unsigned char>(letter)] == 0;
  }

  Contraction out;
  out.extents = extents;
  out.swapped = last == &x_only;
  const Strides a = strides_of(out.swapped ? w : x, extents),
                b = strides_of(out.swapped ? x : w, extents);
  const Strides c = strides_of(sig.out, extents);
  for (std::size_t i = 2; i < sig.in.size(); ++i)
    out.addend_strides.push_back(strides_of(sig.in[i], extents));
  const std::vector<Strides>& addends = out.addend_strides;

  out.outer = runs_of(batch, extents, a, b, c, addends);
  std::vector<Run> rows = runs_of(out.swapped ? w_only : x_only, extents, a, b, c, {});
  std::vector<Run> cols = runs_of(out.swapped ? x_only : w_only, extents, a, b, c, addends);
  out.products = rows.empty() && cols.empty();
  // Writing along the last dim of the result is worth a smaller product, down to a vector or two.
  const std::size_t best_col =
      !cols.empty() && cols.back().extent >= 16 ? cols.size() - 1 : largest(cols);
  if (!rows.empty()) out.m = take(rows, largest(rows));
  if (!cols.empty()) out.n = take(cols, best_col);
  if (out.products && !out.outer.empty()) out.n = take(out.outer, out.outer.size() - 1);
  for (const std::vector<Run>& rest : {rows, cols})
    out.outer.insert(out.outer.end(), rest.begin(), rest.end());

  if (empty) {
    out.k.extent = 0;
  } else {
    out.outer_k = runs_of(k_letters, extents, a, b, c, {});
    if (!out.outer_k.empty()) out.k = take(out.outer_k, largest(out.outer_k));
    const std::vector<Run> alone = runs_of(single, extents, a, b, c, {});
    out.outer_k.insert(out.outer_k.end(), alone.begin(), alone.end());
  }
  return out;
}

}  // namespace tessera::exec
