// The end of a step: the global norm, whether all is finite, and the optimizers over flat buckets.
// A value that changes per step (learning rate, step, factor, flag) is an operand in memory, never
// an attribute.
#include <algorithm>

#include "base/check.h"
#include "ir/signature.h"
#include "ops/table.h"

namespace tessera::ops {
namespace {

using namespace ir;

// The first `kept` operands come back updated; then the gradient, scalars, and the optional factor
// and flag.
Types check_update(In in, std::size_t kept, std::size_t scalars, bool factor, bool ok) {
  CHECK(in.size() == kept + 1 + scalars + (factor ? 1u : 0u) + (ok ? 1u : 0u),
        "an update was given a wrong number of operands");
  for (std::size_t i = 1; i <= kept; ++i)
    CHECK(in[i].shape == in[0].shape && is_float(in[i].dtype),
          "weights, state and gradient of an update have one shape");
  for (std::size_t i = kept + 1; i < in.size(); ++i)
    CHECK(in[i].shape.empty(), "rates, steps, factors and flags are scalars");
  Types out(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(kept));
  for (Type& type : out) type.at.clear();
  return out;
}
Types infer_sgd(const Attrs& attrs, In in) {
  const Sgd& a = std::get<Sgd>(attrs);
  return check_update(in, 2, 1, a.factor, a.ok);
}
Types infer_adamw(const Attrs& attrs, In in) {
  const AdamW& a = std::get<AdamW>(attrs);
  return check_update(in, 3, 2, a.factor, a.ok);
}
std::string scalars(int n) { return std::string(static_cast<std::size_t>(n), ','); }
std::string sgd_signature(const Attrs& attrs, int) {
  const Sgd& a = std::get<Sgd>(attrs);
  return "*,*,*" + scalars(1 + a.factor + a.ok) + "->*,*";
}
std::string adamw_signature(const Attrs& attrs, int) {
  const AdamW& a = std::get<AdamW>(attrs);
  return "*,*,*,*" + scalars(2 + a.factor + a.ok) + "->*,*,*";
}
Types infer_clip(const Attrs&, In in) {
  CHECK(in.size() == 1 && in[0].shape.empty(), "clip takes the sum of squares");
  return {in[0], in[0]};
}
Types infer_finite(const Attrs&, In in) {
  CHECK(!in.empty(), "finite takes at least one scalar");
  for (const Type& type : in) CHECK(type.shape.empty(), "finite takes scalars");
  return {{in[0].dtype, {}, {}}};
}
std::string finite_signature(const Attrs&, int operands) {
  return scalars(std::max(0, operands - 1)) + "->";
}

// The number of applied updates, and a flag.
Types infer_advance(const Attrs&, In in) {
  CHECK((in.size() == 1 || in.size() == 2) && in[0].dtype == DType::i64 && in[0].shape.empty(),
        "advance takes a step i64[] [and a flag]");
  CHECK(in.size() == 1 || (in[1].shape.empty() && is_float(in[1].dtype)),
        "the flag of advance is one floating number");
  return {{DType::i64, {}, {}}};
}
Types infer_lookup(const Attrs&, In in) {
  CHECK(in.size() == 3 && in[0].rank() == 1 && is_float(in[0].dtype),
        "lookup takes a table of numbers, an index and the first index");
  CHECK(in[0].shape[0] > 0, "lookup takes a table that is not empty");
  for (const Type& index : in.subspan(1))
    CHECK(index.dtype == DType::i64 && index.shape.empty(), "the indices of lookup are i64[]");
  return {{in[0].dtype, {}, {}}};
}
Types infer_loss_scale(const Attrs&, In in) {
  CHECK(in.size() == 1 && in[0].shape.empty() && is_float(in[0].dtype),
        "loss_scale takes the stored scale");
  return {{in[0].dtype, {}, {}}, {in[0].dtype, {}, {}}};
}
Types infer_rescale(const Attrs&, In in) {
  CHECK(in.size() == 5, "rescale takes the scale, two counters and two flags");
  for (const Type& type : in) CHECK(type.shape.empty(), "the operands of rescale are scalars");
  for (const std::size_t i : {1u, 2u})
    CHECK(in[i].dtype == DType::i64, "the counters of rescale are i64[]");
  for (const std::size_t i : {0u, 3u, 4u})
    CHECK(is_float(in[i].dtype) && in[i].dtype == in[0].dtype,
          "the scale and the flags of rescale have one floating type");
  Types out(in.begin(), in.begin() + 4);
  for (Type& type : out) type.at.clear();
  return out;
}

}  // namespace

std::vector<OpDef> update_rows() {
  return {
      {.op = Op::sgd,
       .doc = "w, momentum, grad, lr, [factor], [ok] -> w, momentum (PyTorch's SGD)",
       .sig = "",
       .infer = infer_sgd,
       .may_alias = {{0, 0}, {1, 1}},
       .signature = sgd_signature},
      {.op = Op::adamw,
       .doc = "w, m, v, grad, lr, step, [factor], [ok] -> w, m, v (decoupled decay)",
       .sig = "",
       .infer = infer_adamw,
       .may_alias = {{0, 0}, {1, 1}, {2, 2}},
       .signature = adamw_signature},
      {.op = Op::ema,
       .doc = "average, w -> decay average + (1 - decay) w",
       .sig = "*,*->*",
       .may_alias = {{0, 0}}},
      {.op = Op::clip,
       .doc = "sum of squares -> norm, min(1, max/norm)",
       .sig = "->,",
       .infer = infer_clip},
      {.op = Op::finite,
       .doc = "scalars -> 1 when all are finite, else 0",
       .sig = "",
       .infer = infer_finite,
       .signature = finite_signature},
      {.op = Op::advance,
       .doc = "step, [ok] -> step + 1; step itself where ok is 0",
       .sig = "",
       .infer = infer_advance,
       .may_alias = {{0, 0}},
       .signature = finite_signature},
      {.op = Op::lookup,
       .doc = "table, index, first -> table[index - first]; beyond either end the last one there",
       .sig = "a!,,->",
       .infer = infer_lookup},
      {.op = Op::loss_scale,
       .doc = "stored scale -> the scale in use (the first one where 0 is stored), its inverse",
       .sig = "->,",
       .infer = infer_loss_scale},
      {.op = Op::rescale,
       .doc =
           "scale, good steps, overflows, ok, sound -> the first three anew, 1 where an overflow "
           "was answered by them",
       .sig = ",,,,->,,,",
       .infer = infer_rescale,
       .may_alias = {{0, 0}, {1, 1}, {2, 2}}},
  };
}

}  // namespace tessera::ops
