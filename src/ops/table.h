// The rows of every family, and what the rules of several families share. Meaning only: no kernel
// is known here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "ir/part.h"

namespace tessera::ops {

std::vector<ir::OpDef> contract_rows();
std::vector<ir::OpDef> quantize_rows();
std::vector<ir::OpDef> conv_rows();
std::vector<ir::OpDef> attention_rows();
std::vector<ir::OpDef> pointwise_rows();
std::vector<ir::OpDef> activation_rows();  // pointwise, too
std::vector<ir::OpDef> norm_rows();
std::vector<ir::OpDef> batch_norm_rows();
std::vector<ir::OpDef> loss_rows();
std::vector<ir::OpDef> shape_rows();
std::vector<ir::OpDef> bucket_rows();
std::vector<ir::OpDef> window_rows();
std::vector<ir::OpDef> reduce_rows();
std::vector<ir::OpDef> update_rows();
std::vector<ir::OpDef> lamb_rows();
std::vector<ir::OpDef> collective_rows();
std::vector<ir::OpDef> compress_rows();
std::vector<ir::OpDef> image_rows();

// The op table of docs/ir.md, as Markdown.
std::string markdown();

using Types = std::vector<ir::Type>;
using In = std::span<const ir::Type>;
using Grads = std::vector<ir::Var>;
using Grad = std::span<const ir::Var>;

// The operand of a rule that takes exactly one.
inline const ir::Type& only(In in) {
  CHECK(in.size() == 1, "takes one operand, got " + std::to_string(in.size()));
  return in[0];
}

// A signature of which no dim may be sharded.
inline std::string pinned(std::string_view sig) {
  std::string out;
  for (const char c : sig) {
    out += c;
    if (c >= 'a' && c <= 'z') out += '!';
  }
  return out;
}

// A view that begins where its operand does.
inline std::int64_t view_all(const ir::Attrs&, In, int) { return 0; }

// The attribute `shape` is the result's: on a rank, that of its part.
template <class A>
void local_shape_of_result(ir::Attrs& attrs, const ir::Part& part) {
  std::get<A>(attrs).shape = part.shape(part.eqn.out[0]);
}

}  // namespace tessera::ops
