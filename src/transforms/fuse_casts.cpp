// Mixed precision casts every weight by itself, and most of them are small: a hundred steps that do
// next to nothing. Weights are views of flat buckets, so the bucket is cast once and the weights
// are views of that; the elements are the same, and so is their rounding.
#include <map>
#include <tuple>
#include <vector>

#include "ir/builder.h"
#include "transforms/transforms.h"
#include "transforms/uses.h"

namespace tessera::transforms {
namespace {

using namespace ir;

bool whole_everywhere(const Type& type) {
  for (const Place& place : type.at)
    if (place != whole) return false;
  return true;
}

// The bucket of which a cast narrows one view; none where it does something else.
Var bucket_behind(const Program& program, const Uses& uses, const Eqn& e) {
  if (e.op != Op::cast || !is_low(std::get<Cast>(e.attrs).to)) return none;
  const Eqn* view = uses.made_by(e.in[0], Op::view);
  if (!view || std::get<View>(view->attrs).parts != 1) return none;
  const Var bucket = view->in[0];
  const bool input = uses.made_at(bucket) < 0;
  return input && program.type(bucket).rank() == 1 && whole_everywhere(program.type(bucket))
             ? bucket
             : none;
}

}  // namespace

Program fuse_casts(const Program& program) {
  const Uses uses(program);
  // Casts of one bucket to one type, of one stage and phase.
  std::map<std::tuple<Var, DType, int, Phase>, std::vector<int>> groups;
  for (const Eqn& e : program.eqns)
    if (const Var bucket = bucket_behind(program, uses, e); bucket != none)
      groups[{bucket, std::get<Cast>(e.attrs).to, e.stage, e.phase}].push_back(uses.index(e));
  std::map<int, Var*> copies;  // by the index of a cast: where the bucket's copy is noted
  std::map<std::tuple<Var, DType, int, Phase>, Var> made;
  for (const auto& [key, casts] : groups) {
    std::int64_t elements = 0;
    for (const int i : casts)
      elements += program.type(program.eqns[static_cast<std::size_t>(i)].out[0]).elements();
    // A bucket of which little is read in the low type is left as it is.
    if (casts.size() < 2 || 4 * elements < program.type(std::get<0>(key)).elements()) continue;
    Var& copy = made.emplace(key, none).first->second;
    for (const int i : casts) copies[i] = &copy;
  }
  Rewriter r(program);
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    const auto found = copies.find(static_cast<int>(i));
    if (found == copies.end()) {
      r.copy(e);
      continue;
    }
    const Eqn& view = *uses.made_by(e.in[0], Op::view);
    Var& copy = *found->second;
    if (copy == none) {
      r.enter(e);
      r.to.set_scope("");
      copy = r.to.emit_named(
          Op::cast, e.attrs, {r(view.in[0])},
          {program.name_of(view.in[0]) + "." + std::string(name(std::get<Cast>(e.attrs).to))})[0];
    }
    Eqn as_view = e;
    as_view.op = Op::view;
    r.copy_with(as_view, view.attrs, {copy});
  }
  return r.finish();
}

}  // namespace tessera::transforms
