#include "plan/offload.h"

#include <algorithm>

#include "base/check.h"
#include "base/index.h"

namespace tessera::plan {
namespace {

using namespace ir;

// A piece begins where a vector of any kernel may begin.
constexpr std::int64_t step_elements = 64;

}  // namespace

Pieces::Pieces(const Program& p, const Assignment& a, const Target& target, bool overlap)
    : cuts_(p.eqns.size()), places_(overlap ? 3 : 1) {
  const auto is_away = [&](Var v) {
    return v != none && a.values[at(v)].base > 0 &&
           a.persistent[at(a.values[at(v)].base - 1)].home != Home::device;
  };
  for (std::size_t i = 0; i < p.eqns.size(); ++i) {
    const Eqn& e = p.eqns[i];
    if (e.op == Op::copy) continue;  // comes or goes whole
    Cut cut;
    const auto note = [&](Var v, bool reads) {
      if (!is_away(v)) return;
      const Storage& s = a.values[at(v)];
      auto found = std::find(cut.away.begin(), cut.away.end(), s);
      if (found == cut.away.end())
        found = cut.away.insert(
            cut.away.end(),
            Away{.base = s.base, .offset = s.offset, .read = false, .written = false});
      (reads ? found->read : found->written) = true;
      const Buffer& buffer = a.persistent[at(s.base - 1)];
      CHECK(by_element(e), buffer.name + " rests on the " + std::string(name(buffer.home)) +
                               ", so `" + print(p, e) +
                               "` would be done in pieces, which only an " +
                               "op that works element by element can be");
      const std::int64_t size = size_of(p.type(v).dtype);
      cut.elements = p.type(v).elements();
      cut.piece = std::max(p.input(buffer.name)->piece / size / step_elements, std::int64_t{1}) *
                  step_elements;
      cut.line = std::max(cut.line, target.aligned(std::min(cut.piece, cut.elements) * size));
    };
    for (const Var v : e.in) note(v, true);
    for (const Var v : e.out) note(v, false);
    if (cut.away.empty()) continue;
    for (const auto* list : {&e.in, &e.out})
      for (const Var v : *list)
        CHECK(v == none || p.type(v).rank() == 0 || p.type(v).elements() == cut.elements,
              "what is done in pieces has one shape");
    std::int64_t begin = 0;
    do {
      list_.push_back({i, begin, std::min(cut.piece, cut.elements - begin)});
      begin += cut.piece;
    } while (begin < cut.elements);
    place_bytes_ = std::max(place_bytes_, cut.line * static_cast<std::int64_t>(cut.away.size()));
    cuts_[i] = std::move(cut);
  }
}

}  // namespace tessera::plan
