#include "ir/placement.h"

#include <algorithm>

#include "base/check.h"
#include "ir/signature.h"

namespace tessera::ir {
namespace {

// '*' written out: capitals for its dims, as many as the operands say.
std::string written_out(const std::string& letters, std::size_t run) {
  std::string out;
  for (const char c : letters) {
    if (c != '*')
      out += c;
    else
      for (std::size_t i = 0; i < run; ++i) out += static_cast<char>('A' + i);
  }
  return out;
}

bool all_are(const std::vector<Place>& places, Place::Kind kind) {
  return std::all_of(places.begin(), places.end(), [&](const Place& p) { return p.kind == kind; });
}

// Whether a collective turns the place it has into the one that is wanted.
bool collective_fits(const Eqn& e, Place have, Place want) {
  const Collective& a = std::get<Collective>(e.attrs);
  const Place cut{Place::S, a.dim};
  switch (e.op) {
    case Op::all_reduce:
      return have == partial && want == whole;
    case Op::all_gather:
      return have == cut && want == whole;
    case Op::reduce_scatter:
      return have == partial && want == cut;
    case Op::all_to_all:
      return have == Place{Place::S, a.from} && want == cut && a.from != a.dim;
    case Op::own:
      return have == whole && want == cut;
    case Op::once:
      return have == whole && want == partial;
    default:  // widen
      return (have == cut || have.kind == Place::O) && want == partial;
  }
}

}  // namespace

Letters letters_of(Op op, const Attrs& attrs, std::span<const Type> in, std::span<const Type> out) {
  const OpDef& row = def(op);
  const std::string text = row.placement ? row.placement(attrs, in, out)
                                         : signature(op, attrs, static_cast<int>(in.size()));
  CHECK(!text.empty(), std::string(name(op)) + " does not say how it is sharded");
  const Signature& sig = parsed_signature(text);
  std::size_t run = 0;
  for (std::size_t i = 0; i < in.size() && i < sig.in.size(); ++i)
    if (sig.in[i].letters.find('*') != std::string::npos)
      run = in[i].shape.size() + 1 - sig.in[i].letters.size();
  Letters all;
  for (const auto& [from, to] : {std::pair(&sig.in, &all.in), std::pair(&sig.out, &all.out)})
    for (const Signature::Operand& operand : *from) {
      to->push_back(written_out(operand.letters, run));
      all.pinned += written_out(operand.pinned, run);
    }
  if (in.empty()) all.in.clear();
  while (all.out.size() < out.size())
    all.out.push_back(all.out.back());  // a contraction's value before its activation
  return all;
}

Place place_of(const std::string& letters, char letter) {
  const auto at = letters.find(letter);
  return at == std::string::npos ? Place{} : Place{Place::S, static_cast<int>(at)};
}

bool sums_alone(const Eqn& e) {
  if (const Contract* a = std::get_if<Contract>(&e.attrs))
    return e.in.size() == 2 && a->act.empty();
  if (const Conv* a = std::get_if<Conv>(&e.attrs); a && e.op == Op::conv)
    return e.in.size() == 2 && !a->relu;
  return true;
}

Place result_place(Op op, const Letters& letters, std::size_t r, char letter) {
  const Place cut = place_of(letters.out[r], letter);
  const std::vector<int>& whole = def(op).follows;
  if (cut.kind == Place::S ||
      std::find(whole.begin(), whole.end(), static_cast<int>(r)) != whole.end())
    return cut;
  return {Place::P, -1};
}

std::optional<std::vector<Place>> propagate(const Program& p, const Eqn& e, int axis) {
  if (std::all_of(e.in.begin(), e.in.end(),
                  [&](Var v) { return place_on(p.type(v), axis) == Place{}; }))
    return std::vector<Place>(e.out.size());
  std::vector<Place> have;
  have.reserve(e.in.size());
  for (Var v : e.in) have.push_back(place_on(p.type(v), axis));
  const OpDef& row = def(e.op);
  if (e.op == Op::mark) return have;
  // A stage works alone on what it alone has; what all have goes along.
  if (const auto only = std::find_if(have.begin(), have.end(),
                                     [](Place place) { return place.kind == Place::O; });
      only != have.end()) {
    const bool alone = std::all_of(have.begin(), have.end(),
                                   [&](Place place) { return place == *only || place == Place{}; });
    return alone ? std::optional(std::vector<Place>(e.out.size(), *only)) : std::nullopt;
  }
  const std::vector<Place> partials(e.out.size(), partial);
  // Rounding to one byte is not linear: neither a quantised factor nor its scale is a partial sum.
  if (is_quantised(p.type(e.in[0]).dtype) &&
      std::find(have.begin(), have.end(), partial) != have.end())
    return std::nullopt;
  if (e.op == Op::contract && e.in.size() > 2 &&
      all_are({have.begin() + 2, have.end()}, Place::P)) {
    // Addends of a partial product are partial too.
    Eqn product = e;
    product.in.resize(2);
    Contract& a = std::get<Contract>(product.attrs);
    const Signature& sig = parsed_signature(a.sig);
    a.sig = sig.in[0].letters + "," + sig.in[1].letters + "->" + sig.out[0].letters;
    const auto made = propagate(p, product, axis);
    return a.act.empty() && made && (*made)[0] == partial ? made : std::nullopt;
  }
  if (std::find(have.begin(), have.end(), partial) != have.end()) {
    if (row.adds) return all_are(have, Place::P) ? std::optional(partials) : std::nullopt;
    // One of two partial sums, whichever it is.
    if (e.op == Op::select && have[0] == Place{} && have[1] == partial && have[2] == partial)
      return partials;
    if (!sums_alone(e)) return std::nullopt;
    int found = 0;
    for (std::size_t i = 0; i < have.size(); ++i) {
      const bool linear =
          std::find(row.linear.begin(), row.linear.end(), static_cast<int>(i)) != row.linear.end();
      if (have[i].kind == Place::S || (have[i].kind == Place::P && !linear)) return std::nullopt;
      found += have[i].kind == Place::P;
    }
    return found == 1 ? std::optional(partials) : std::nullopt;
  }
  // The class token cut off a sharded token dim: whoever owns it contributes.
  if (const Slice* slice = std::get_if<Slice>(&e.attrs);
      slice && have[0] == Place{Place::S, slice->dim})
    return partials;
  const Letters letters = letters_of(e.op, e.attrs, p.types(e.in), p.types(e.out));
  char letter = 0;
  for (std::size_t i = 0; i < have.size(); ++i)
    if (have[i].kind == Place::S) letter = letters.in[i][static_cast<std::size_t>(have[i].dim)];
  if (letters.pinned.find(letter) != std::string::npos) return std::nullopt;
  for (std::size_t i = 0; i < have.size(); ++i)
    if (have[i] != place_of(letters.in[i], letter)) return std::nullopt;
  std::vector<Place> out;
  for (std::size_t r = 0; r < e.out.size(); ++r)
    out.push_back(result_place(e.op, letters, r, letter));
  if (std::find(out.begin(), out.end(), partial) != out.end() && !sums_alone(e))
    return std::nullopt;
  return out;
}

namespace {

// A collective in a program of global shapes: on an axis of the mesh, and, where several axes cut
// one dim, on the innermost cut only (the earliest axis, ir/type.h): the parts along any other are
// not contiguous.
void check_axis(const Program& p, const Eqn& e, const std::string& over, bool parts) {
  const std::string op(name(e.op));
  const int axis = p.mesh.find(over);
  CHECK(axis >= 0,
        op + " is over " + (over.empty() ? "no axis" : over + ", which is no axis of the mesh"));
  CHECK(!parts, op + " lists the parts of ranks; a program with a mesh has global shapes");
  for (const Var v : {e.in[0], e.out[0]}) {
    if (v == none) continue;
    const Place place = place_on(p.type(v), axis);
    for (int inner = 0; inner < axis; ++inner)
      CHECK(place.kind != Place::S || place_on(p.type(v), inner) != place,
            op + " over " + over + " reaches through the cut that " +
                p.mesh.axes[static_cast<std::size_t>(inner)].name + " made in the same dim of " +
                p.name_of(v));
  }
}

// Encoding is not linear: sums over other axes come first. What is left lies as what it is left of.
void check_compressed(const Program& p, const Eqn& e, const Compressed& a, int axis) {
  const std::string& axis_name = p.mesh.axes[static_cast<std::size_t>(axis)].name;
  const Place have = place_on(p.type(e.in[0]), axis);
  const bool here = a.axis == axis_name;
  CHECK(here == (have == partial), std::string(name(e.op)) + " over " + a.axis +
                                       " takes a partial sum on " + a.axis +
                                       " and on no other axis");
  if (e.out[0] != none)
    CHECK(place_on(p.type(e.out[0]), axis) == (!here       ? have
                                               : a.dim < 0 ? Place{}
                                                           : Place{Place::S, a.dim}),
          std::string(name(e.op)) + " does not lead from its operand's place on " + axis_name +
              " to its result's");
  for (const std::vector<Var>* side : {&e.in, &e.out})
    for (std::size_t i = 1; i < side->size(); ++i)
      CHECK((*side)[i] == none || place_on(p.type((*side)[i]), axis) == have,
            p.name_of((*side)[i]) + " is not placed on " + axis_name + " as " + p.name_of(e.in[0]) +
                ", of which it is left");
}

}  // namespace

void check_places(const Program& p, const Eqn& e) {
  const Compressed* compressed = std::get_if<Compressed>(&e.attrs);
  if (const Collective* a = std::get_if<Collective>(&e.attrs); a && !p.mesh.axes.empty())
    check_axis(p, e, a->axis, !a->parts.empty() || !a->from_parts.empty());
  if (compressed && !p.mesh.axes.empty())
    check_axis(p, e, compressed->axis, !compressed->parts.empty());
  if (const Message* a = std::get_if<Message>(&e.attrs); a && !p.mesh.axes.empty()) {
    CHECK(e.op == Op::transfer,
          std::string(name(e.op)) +
              " is one rank's half of a transfer; a program with a mesh has global shapes");
    check_axis(p, e, a->axis, false);
  }
  for (int axis = 0; axis < static_cast<int>(p.mesh.axes.size()); ++axis) {
    const std::string& axis_name = p.mesh.axes[static_cast<std::size_t>(axis)].name;
    if (compressed) {
      check_compressed(p, e, *compressed, axis);
      continue;
    }
    if (const Message* a = std::get_if<Message>(&e.attrs)) {
      if (e.out[0] == none) continue;
      const Place from = place_on(p.type(e.in[0]), axis), to = place_on(p.type(e.out[0]), axis);
      const Place sender{Place::O, a->from}, receiver{Place::O, a->to};
      CHECK(a->axis == axis_name ? from == sender && to == receiver : from == to,
            std::string(name(e.op)) + " does not lead from its operand's place on " + axis_name +
                " to its result's");
      continue;
    }
    if (const Collective* a = std::get_if<Collective>(&e.attrs)) {
      if (e.out[0] == none) continue;
      const Place have = place_on(p.type(e.in[0]), axis), want = place_on(p.type(e.out[0]), axis);
      CHECK(a->axis == axis_name ? collective_fits(e, have, want) : have == want,
            std::string(name(e.op)) + " does not lead from its operand's place on " + axis_name +
                " to its result's");
      continue;
    }
    const auto want = propagate(p, e, axis);
    CHECK(want, std::string(name(e.op)) + " cannot work on operands placed like these on " +
                    axis_name + "; a collective is missing");
    for (std::size_t r = 0; r < e.out.size(); ++r) {
      if (e.out[r] == none) continue;
      const Place got = place_on(p.type(e.out[r]), axis);
      if (got == (*want)[r]) continue;
      if (got.kind == Place::O && (*want)[r] == Place{})
        continue;  // what all could make one may make alone
      // A constant, or a dim that only the result of a broadcast has, may be made in parts.
      const bool made_in_parts =
          got.kind == Place::S && (*want)[r].kind != Place::P &&
          (e.op == Op::constant ||
           (e.op == Op::broadcast &&
            letters_in(std::get<Broadcast>(e.attrs).sig, 0)
                    .find(letters_out(
                        std::get<Broadcast>(e.attrs).sig)[static_cast<std::size_t>(got.dim)]) ==
                std::string::npos));
      CHECK(made_in_parts, p.name_of(e.out[r]) + " is not placed on " + axis_name + " as " +
                               std::string(name(e.op)) + " makes it");
    }
  }
}

}  // namespace tessera::ir
