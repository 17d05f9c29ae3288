// Strategies: each technique is a few lines that say where inputs live and what marks ask for;
// place() does the rest.
//   data parallel      batch inputs on dp
//   ZeRO 1, 2          + optimizer state and gradients on dp (2: also between micro-batches, which
//   is accumulate()'s affair) ZeRO 3             + weights on dp tensor (Megatron)  dims named
//   heads, mlp and hidden on tp sequence, Megatron + marks "residual" on tp; Ulysses: marks
//   "residual" and "tokens" on sp, "heads" too
// A data axis that shards buckets takes the sequence axis along: its ranks hold the same weights,
// too.
#include <map>
#include <set>

#include "base/check.h"
#include "transforms/transforms.h"

namespace tessera::transforms {

using namespace ir;

Mesh Layout::mesh() const {
  Mesh out = mesh_of_stage();
  if (pp > 1) out.axes.insert(out.axes.begin(), {Axis::stage, "pp", pp, {}});
  return out;
}

Mesh Layout::mesh_of_stage() const {
  Mesh out;
  const auto add = [&](Axis::Kind kind, const char* name, int size) {
    if (size > 1) out.axes.push_back({kind, name, size});
  };
  add(Axis::data, "dp", dp);
  add(Axis::sequence, "sp", sp);
  add(Axis::model, "tp", tp);
  return out;
}

const std::vector<std::string>& tensor_dims() {
  static const std::vector<std::string> dims = {"heads", "mlp", "hidden"};
  return dims;
}

namespace {

// dim -> axis, by the names of a tensor's dims.
using Where = std::map<std::string, std::vector<std::string>>;

void put(Type& type, const Mesh& mesh, const std::string& axis, int dim) {
  if (const int a = mesh.find(axis); a >= 0) set_place(type, mesh, a, {Place::S, dim});
}

// A cut goes by the extent alone. Where batches are cut unevenly a bucket as long as one of them
// would be cut like it, and evenly by a plan of another batch; so one that may be as long as a
// batch stays whole.
bool may_be_cut(const Type& bucket, const Layout& layout) {
  if (layout.shares.empty()) return true;
  return bucket.shape.back() > layout.sp * layout.most_samples;
}

}  // namespace

Program strategy(const Program& program, const Layout& layout) {
  Program p = program;
  p.mesh = layout.mesh_of_stage();
  if (p.mesh.axes.empty()) return p;
  if (const int dp = p.mesh.find("dp"); dp >= 0 && !layout.shares.empty()) {
    std::set<std::int64_t> samples;  // of the micro-batches
    for (const Input& in : p.inputs)
      if (in.kind == Input::batch) samples.insert(p.type(in.var).shape[0]);
    for (const std::int64_t n : samples) {
      CHECK(n <= layout.most_samples, "a batch of more samples than the layout was told of");
      p.mesh.axes[static_cast<std::size_t>(dp)].cuts.push_back(split_by(n, layout.shares));
    }
  }
  const std::vector<std::string> over_data = {"dp", "sp"};
  Where params = {{"part", {"tp"}}};
  for (const std::string& dim : tensor_dims()) params[dim] = {"tp"};
  Where state = params;
  if (layout.zero >= 1) state["bucket"] = over_data;
  if (layout.zero >= 3) params["bucket"] = over_data;
  for (const Input& in : p.inputs) {
    Type& type = p.values[static_cast<std::size_t>(in.var)].type;
    if (in.kind == Input::batch) put(type, p.mesh, "dp", 0);
    if (in.kind == Input::batch || in.kind == Input::scalar) continue;
    for (int dim = 0; dim < static_cast<int>(in.dims.size()); ++dim) {
      // An average that is read as the weights is still kept as state.
      const Where& kept = in.kind == Input::param && in.role != Role::average ? params : state;
      const std::string& name = in.dims[static_cast<std::size_t>(dim)];
      if (const auto axes = kept.find(name);
          axes != kept.end() && (name != "bucket" || may_be_cut(type, layout)))
        for (const std::string& axis : axes->second) put(type, p.mesh, axis, dim);
    }
  }
  for (const Eqn& eqn : p.eqns) {
    if (eqn.op != Op::mark) continue;
    const Mark& mark = std::get<Mark>(eqn.attrs);
    Type& type = p.values[static_cast<std::size_t>(eqn.out[0])].type;
    if (mark.label == "grad" && layout.zero >= 1 && may_be_cut(type, layout))
      for (const std::string& axis : over_data) put(type, p.mesh, axis, type.rank() - 1);
    if (mark.dim < 0) continue;
    if (mark.label == "residual" && layout.megatron_sequence) put(type, p.mesh, "tp", mark.dim);
    if (mark.label == "residual" || mark.label == "tokens" || mark.label == "heads")
      put(type, p.mesh, "sp", mark.dim);
  }
  return p;
}

}  // namespace tessera::transforms
