#include "ir/op.h"

#include <array>

#include "base/check.h"
#include "ir/signature.h"

namespace tessera::ir {

std::string_view name(Op op) {
  static constexpr std::array<std::string_view, op_count> names{
#define X(op, attrs) #op,
      TESSERA_OPS(X)
#undef X
  };
  return names[static_cast<std::size_t>(op)];
}

std::optional<Op> parse_op(std::string_view text) {
  for (int i = 0; i < op_count; ++i)
    if (name(static_cast<Op>(i)) == text) return static_cast<Op>(i);
  return std::nullopt;
}

Attrs default_attrs(Op op) {
  switch (op) {
#define X(op, attrs) \
  case Op::op:       \
    return attrs{};
    TESSERA_OPS(X)
#undef X
  }
  return None{};
}

std::string signature(Op op, const Attrs& attrs, int operands) {
  const OpDef& row = def(op);
  if (row.signature) return row.signature(attrs, operands);
  if (!row.sig.empty()) return std::string(row.sig);
  if (const Sig* a = std::get_if<Sig>(&attrs)) return a->sig;
  if (const Contract* a = std::get_if<Contract>(&attrs)) return a->sig;
  if (const Quantize* a = std::get_if<Quantize>(&attrs)) return a->sig;
  if (const Sum* a = std::get_if<Sum>(&attrs)) return a->sig;
  if (const Broadcast* a = std::get_if<Broadcast>(&attrs)) return a->sig;
  return {};
}

namespace {

// Which kind of attributes an op has. Every equation of every program is asked, after every pass.
std::size_t kind_of_attrs(Op op) {
  static const auto kinds = [] {
    std::array<std::size_t, op_count> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = default_attrs(static_cast<Op>(i)).index();
    return all;
  }();
  return kinds[static_cast<std::size_t>(op)];
}

}  // namespace

std::vector<Type> infer(Op op, const Attrs& attrs, std::span<const Type> in) {
  CHECK(attrs.index() == kind_of_attrs(op),
        std::string(name(op)) + " was given the attributes of another op");
  const OpDef& row = def(op);
  std::vector<Type> out;
  if (row.infer)
    out = row.infer(attrs, in);
  else
    for (Shape& shape : infer_shapes(signature(op, attrs, static_cast<int>(in.size())), in))
      out.push_back({in[0].dtype, std::move(shape), {}});
  // Kernels are f64 throughout or f32 and narrower; only cast crosses.
  bool f64 = false, narrower = false;
  for (const std::span<const Type> list : {in, std::span<const Type>(out)})
    for (const Type& type : list)
      (type.dtype == DType::f64 ? f64 : narrower) |= is_float(type.dtype);
  CHECK(op == Op::cast || !(f64 && narrower),
        "f64 does not mix with other float types; cast first");
  return out;
}

Cost cost(Op op, const Attrs& attrs, std::span<const Type> in, std::span<const Type> out) {
  const OpDef& row = def(op);
  Cost c = row.cost ? row.cost(attrs, in, out) : Cost{};
  if (row.view && row.view(attrs, in, 0) >= 0) return c;
  for (const Type& type : in) c.bytes += static_cast<double>(type.bytes());
  for (const Type& type : out) c.bytes += static_cast<double>(type.bytes());
  return c;
}

}  // namespace tessera::ir
