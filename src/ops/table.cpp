#include "ops/table.h"

#include <array>

#include "base/check.h"
#include "ir/signature.h"

namespace tessera {
namespace {

const std::array<ir::OpDef, ir::op_count>& table() {
  static const std::array<ir::OpDef, ir::op_count> rows = [] {
    std::array<ir::OpDef, ir::op_count> all{};
    std::array<bool, ir::op_count> seen{};
    for (auto family : {ops::contract_rows, ops::quantize_rows, ops::conv_rows, ops::attention_rows,
                        ops::pointwise_rows, ops::activation_rows, ops::norm_rows,
                        ops::batch_norm_rows, ops::loss_rows, ops::shape_rows, ops::bucket_rows,
                        ops::window_rows, ops::reduce_rows, ops::update_rows, ops::lamb_rows,
                        ops::collective_rows, ops::compress_rows, ops::image_rows})
      for (ir::OpDef& row : family()) {
        const auto at = static_cast<std::size_t>(row.op);
        CHECK(!seen[at], "op " + std::string(ir::name(row.op)) + " has two rows");
        seen[at] = true;
        all[at] = std::move(row);
      }
    for (std::size_t i = 0; i < seen.size(); ++i)
      CHECK(seen[i], "op " + std::string(ir::name(static_cast<ir::Op>(i))) + " has no row");
    return all;
  }();
  return rows;
}

}  // namespace

const ir::OpDef& ir::def(Op op) { return table()[static_cast<std::size_t>(op)]; }

std::string ops::markdown() {
  std::string out =
      "| op | signature | attributes | derivative | storage | meaning "
      "|\n|---|---|---|---|---|---|\n";
  for (const ir::OpDef& row : table()) {
    std::string attributes, storage = row.view      ? "view"
                                      : row.gathers ? "operands inside result"
                                                    : "";
    std::visit(
        [&]<class A>(const A& a) {
          A::fields(a, [&](const char* key, const auto&) {
            attributes += (attributes.empty() ? "" : " ") + std::string(key);
          });
        },
        ir::default_attrs(row.op));
    int result = -1;
    for (const auto& [to, from] : row.may_alias) {  // "result 0 over operand 1 or 0"
      storage += result == to ? " or "
                              : (storage.empty() ? "" : ", ") + std::string("result ") +
                                    std::to_string(to) + " over operand ";
      storage += std::to_string(from);
      result = to;
    }
    for (const auto& [to, from] : row.some_alias)
      storage += (storage.empty() ? "" : ", ") + std::string("on some targets result ") +
                 std::to_string(to) + " over operand " + std::to_string(from);
    const std::string sig =
        row.signature ? row.signature(ir::default_attrs(row.op), 0) : std::string(row.sig);
    out += "| `" + std::string(ir::name(row.op)) + "` | " +
           (!sig.empty()                    ? "`" + sig + "`"
            : attributes.starts_with("sig") ? "attribute"
                                            : "by rule") +
           " | " + attributes + " | " + (row.vjp ? "yes" : "no") + " | " + storage + " | " +
           std::string(row.doc) + " |\n";
  }
  return out;
}

}  // namespace tessera
