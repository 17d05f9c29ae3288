// Gradients that take fewer bytes on the wire: the sum of a bucket over dp becomes one of what
// ranks can decode of each other's shares, and what was left out is kept beside the optimizer's
// state, one residual per rank (a partial sum), to be sent with the next.
//   fp16, bf16, int8, onebit, topk   one op does it, compressed_reduce
//   powersgd (arXiv 1905.13727)      ordinary equations: M of [n,m] is sent as P Q' with P = basis
//   of M Q, Q' = M' P: (n + m) r numbers
// Convention: a step that is skipped leaves what is kept as it was; several micro-batches (ZeRO 2)
// hand it from one to the next.
#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/index.h"
#include "ir/builder.h"
#include "ir/wire.h"
#include "transforms/transforms.h"
#include "transforms/uses.h"

namespace tessera::transforms {
namespace {

using namespace ir;

// The tensor as a matrix: cut between the two dims that leave the least to send. 0 x 0 where it
// does not pay.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  explicit operator bool() const { return rows > 0; }
};
Matrix matrix_of(const Shape& shape, const Compression& spec) {
  Matrix best;
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) {
    rows *= shape[i];
    const std::int64_t columns = rows > 0 ? elements(shape) / rows : 0;
    if (rows > 0 && columns > 0 && (!best || rows + columns < best.rows + best.columns))
      best = {rows, columns};
  }
  const bool pays = (best.rows + best.columns) * spec.rank < best.rows * best.columns;
  return pays || spec.always ? best : Matrix{};
}

class Compressor {
 public:
  Compressor(const Program& program, const Compression& spec, const std::vector<Bucket>& list)
      : r_(program), b_(r_.to), uses_(program), spec_(spec), list_(list) {}

  Program run() {
    for (const Eqn& eqn : r_.from.eqns) {
      const Bucket* bucket = bucket_of(eqn);
      if (!bucket || !(spec_.kind == "powersgd" ? low_rank(eqn, *bucket) : encoded(eqn, *bucket)))
        r_.copy(eqn);
    }
    Var ok = none;
    for (const Output& o : r_.from.outputs)
      if (o.name == "ok") ok = r_(o.var);
    Program out = r_.finish();
    Builder b(std::move(out));
    b.set_scope("optimizer");
    b.set_phase(Phase::update);
    CHECK(kept_.empty() || ok != none, "compression needs the output ok");
    for (const auto& [name, kept] : kept_)
      b.output(name, b.emit1(Op::select, None{}, {ok, kept.now, kept.before}, "kept." + name),
               name);
    return b.take();
  }

 private:
  // State from step to step: the input, and what it is by now.
  struct Kept {
    Var before = none, now = none;
  };
  Kept& keep(Role role, const Bucket& bucket, const Type& type) {
    const std::string name = buffer_name(role, bucket);
    const auto [found, fresh] = kept_.try_emplace(name);
    if (fresh)
      found->second.before = found->second.now =
          b_.input(Input::state, name, type, {}, role, bucket.name);
    return found->second;
  }

  // The bucket whose gradients this equation adds up over dp: a mark of that name is what reads
  // them.
  const Bucket* bucket_of(const Eqn& eqn) const {
    const Collective* a = std::get_if<Collective>(&eqn.attrs);
    if ((eqn.op != Op::all_reduce && eqn.op != Op::reduce_scatter) || a->axis != "dp" ||
        eqn.phase != Phase::update)
      return nullptr;
    for (const int reader : uses_.readers[at(eqn.out[0])]) {
      const Eqn& mark = r_.from.eqns[at(reader)];
      if (mark.op != Op::mark || std::get<Mark>(mark.attrs).label != "grad") continue;
      const std::string& name = r_.from.name_of(mark.out[0]);
      for (const Bucket& bucket : list_)
        if (name.substr(0, name.find('~')) == "optimizer.pinned." + bucket.name) return &bucket;
    }
    return nullptr;
  }

  void put(Var v, const Places& places) { b_.program().values[at(v)].type.at = places; }
  int dim_of(const Eqn& eqn) const {
    return eqn.op == Op::reduce_scatter ? std::get<Collective>(eqn.attrs).dim : -1;
  }

  bool encoded(const Eqn& eqn, const Bucket& bucket) {
    r_.enter(eqn);
    const Var x = r_(eqn.in[0]);
    const Compressed attrs{"dp", spec_.kind, spec_.keep, dim_of(eqn), {}, 0};
    std::vector<Var> in = {x};
    Kept* left = nullptr;
    if (has_residual(*parse_wire(spec_.kind))) {
      left = &keep(Role::residual, bucket, b_.type(x));
      in.push_back(left->now);
    }
    const std::vector<Var> out =
        b_.emit_named(Op::compressed_reduce, attrs, in,
                      {r_.from.name_of(eqn.out[0]), r_.from.name_of(eqn.in[0]) + "/left"});
    put(out[0], r_.from.type(eqn.out[0]).at);
    r_.set(eqn.out[0], out[0]);
    if (left) {
      put(out[1], b_.type(x).at);
      left->now = out[1];
    }
    return true;
  }

  Var sum_over_dp(Var flat) {
    const Var v = b_.emit_named(Op::all_reduce, Collective{"dp", -1, -1, {}, {}, 0}, {flat},
                                {b_.name_of(flat) + "/dp"})[0];
    put(v, {});
    return v;
  }
  static Pack side_by_side(const std::vector<std::int64_t>& sizes) {
    Pack pack;
    for (const std::int64_t n : sizes) {
      pack.offsets.push_back(pack.size);
      pack.size += n;
    }
    return pack;
  }

  // Only of buckets that are whole but for the sum: a matrix of which this rank has some rows is
  // another matrix.
  bool low_rank(const Eqn& eqn, const Bucket& bucket) {
    const Type type = b_.type(r_(eqn.in[0]));
    bool whole = bucket.parts == 1;
    for (int axis = 0; axis < static_cast<int>(type.at.size()); ++axis)
      whole = whole &&
              (place_on(type, axis).kind == Place::R || r_.from.mesh.axes[at(axis)].name == "dp");
    std::vector<Matrix> shapes;
    std::vector<std::int64_t> first,
        second;  // elements of each in the first message, and of the matrices in the second
    for (const Bucket::Entry& entry : bucket.entries) {
      const Matrix m = shapes.emplace_back(matrix_of(entry.shape, spec_));
      first.push_back(m ? m.rows * spec_.rank : elements(entry.shape));
      if (m) second.push_back(m.columns * spec_.rank);
    }
    if (!whole || second.empty()) return false;
    r_.enter(eqn);
    const std::int64_t rank = spec_.rank;
    const Pack ps = side_by_side(first), qs = side_by_side(second);
    Kept &left = keep(Role::residual, bucket, type),
         &q = keep(Role::basis, bucket, {type.dtype, {qs.size}, {}});
    const Builder::Scope scope = b_.scope(bucket.name);
    const Var x = b_.add(r_(eqn.in[0]), left.now, "x");

    // P = basis(sum of M Q); what is no matrix travels along.
    std::vector<Var> matrices, products, bases, shares, sums, sent;
    for (std::size_t i = 0, k = 0; i < shapes.size(); ++i) {
      const Bucket::Entry& e = bucket.entries[i];
      const Shape shape = shapes[i] ? Shape{shapes[i].rows, shapes[i].columns} : e.shape;
      matrices.push_back(b_.emit1(Op::view, View{e.offset, shape, 1, -1}, {x}, "m." + e.param));
      if (!shapes[i]) {
        products.push_back(matrices.back());
        continue;
      }
      const Var last = b_.emit1(Op::view, View{qs.offsets[k++], {shape[1], rank}, 1, -1}, {q.now},
                                "q." + e.param);
      const Var start = b_.emit1(Op::orthogonalise, Stream{"q." + e.param}, {last},
                                 "start." + e.param);  // drawn where there is none yet
      products.push_back(b_.contract("nm,mr->nr", matrices.back(), start, "p." + e.param));
    }
    const Var p = sum_over_dp(b_.emit1(Op::pack, ps, products, "p"));
    // Q' = sum of M' P: kept as the next step's Q.
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const Bucket::Entry& e = bucket.entries[i];
      const Var part = b_.emit1(Op::view, View{ps.offsets[i], b_.type(products[i]).shape, 1, -1},
                                {p}, "sum." + e.param);
      bases.push_back(shapes[i]
                          ? b_.emit1(Op::orthogonalise, Stream{e.param}, {part}, "basis." + e.param)
                          : part);
      if (shapes[i])
        shares.push_back(b_.contract("nm,nr->mr", matrices[i], bases.back(), "share." + e.param));
    }
    q.now = sum_over_dp(b_.emit1(Op::pack, qs, shares, "q"));
    // The sum is P Q'; what this rank's share of Q' does not say of its M is left.
    Pack whole_bucket{{}, bucket.size, 1, {}};
    for (std::size_t i = 0, k = 0; i < shapes.size(); ++i) {
      const Bucket::Entry& e = bucket.entries[i];
      whole_bucket.offsets.push_back(e.offset);
      if (shapes[i]) {
        const Var all = b_.emit1(Op::view, View{qs.offsets[k], {shapes[i].columns, rank}, 1, -1},
                                 {q.now}, "q." + e.param);
        sums.push_back(b_.contract("nr,mr->nm", bases[i], all, "g." + e.param));
        sent.push_back(b_.contract("nr,mr->nm", bases[i], shares[k++], "sent." + e.param));
      } else {
        sums.push_back(bases[i]);
        sent.push_back(matrices[i]);
      }
    }
    Var sum = b_.emit1(Op::pack, whole_bucket, sums, "g");
    left.now =
        b_.add(x, b_.scale(b_.emit1(Op::pack, whole_bucket, sent, "sent"), -1, "minus"), "left");
    if (const int dim = dim_of(eqn); dim >= 0) {
      sum = b_.emit_named(Op::own, Collective{"dp", dim, -1, {}, {}, 0}, {sum},
                          {r_.from.name_of(eqn.out[0])})[0];
      put(sum, r_.from.type(eqn.out[0]).at);
    }
    r_.set(eqn.out[0], sum);
    return true;
  }

  Rewriter r_;
  Builder& b_;
  const Uses uses_;
  const Compression& spec_;
  const std::vector<Bucket>& list_;
  std::map<std::string, Kept> kept_;
};

}  // namespace

Program compress(const Program& program, const Compression& spec, const std::vector<Bucket>& list) {
  if (spec.kind == "none" || program.mesh.find("dp") < 0) return program;
  return Compressor(program, spec, list).run();
}

}  // namespace tessera::transforms
