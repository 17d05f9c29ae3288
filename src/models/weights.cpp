#include "models/weights.h"

#include <charconv>

#include "base/check.h"

namespace tessera::models {
namespace {

struct Row {
  std::string_view torchvision, timm, old;  // old: torchvision before MLPBlock became a Sequential; empty where nothing changed
};

constexpr Row outer_rows[] = {
    {"class_token", "cls_token", ""},
    {"conv_proj.weight", "patch_embed.proj.weight", ""},
    {"conv_proj.bias", "patch_embed.proj.bias", ""},
    {"encoder.pos_embedding", "pos_embed", ""},
    {"encoder.ln.weight", "norm.weight", ""},
    {"encoder.ln.bias", "norm.bias", ""},
    {"heads.head.weight", "head.weight", ""},
    {"heads.head.bias", "head.bias", ""},
};
// After "encoder.layers.encoder_layer_N." and "blocks.N.".
constexpr Row layer_rows[] = {
    {"ln_1.weight", "norm1.weight", ""},
    {"ln_1.bias", "norm1.bias", ""},
    {"self_attention.in_proj_weight", "attn.qkv.weight", ""},
    {"self_attention.in_proj_bias", "attn.qkv.bias", ""},
    {"self_attention.out_proj.weight", "attn.proj.weight", ""},
    {"self_attention.out_proj.bias", "attn.proj.bias", ""},
    {"ln_2.weight", "norm2.weight", ""},
    {"ln_2.bias", "norm2.bias", ""},
    {"mlp.0.weight", "mlp.fc1.weight", "mlp.linear_1.weight"},
    {"mlp.0.bias", "mlp.fc1.bias", "mlp.linear_1.bias"},
    {"mlp.3.weight", "mlp.fc2.weight", "mlp.linear_2.weight"},
    {"mlp.3.bias", "mlp.fc2.bias", "mlp.linear_2.bias"},
};
constexpr std::string_view torchvision_layer = "encoder.layers.encoder_layer_", timm_layer = "blocks.";
constexpr std::string_view wrappers[] = {"module.", "model.", "_orig_mod."};

// "blocks.12.norm1.weight" -> 12, "norm1.weight".
struct LayerName {
  std::int64_t layer = 0;
  std::string_view rest;
};

std::optional<LayerName> split_layer(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const std::size_t digits = name.find('.');
  // At most 6 digits and no leading zero, so that a layer has one spelling and no name overflows.
  if (digits == name.npos || digits == 0 || digits > 6 || (name[0] == '0' && digits > 1)) return std::nullopt;
  LayerName out;
  const auto [end, error] = std::from_chars(name.data(), name.data() + digits, out.layer);
  if (error != std::errc() || end != name.data() + digits || out.layer < 0) return std::nullopt;
  out.rest = name.substr(digits + 1);
  return out;
}

// Walks torch's elements in the order of ours: element i of our layout lies at torch[visit(i)].
template <class Visit>
void for_each_element(const Param& param, Visit&& visit) {
  const ir::Shape& torch = param.split_shape.empty() ? param.torch_shape : param.split_shape;
  const std::size_t rank = torch.size();
  CHECK(param.torch_perm.size() == rank && param.shape.size() == rank, param.name + ": its permutation and its shapes have one rank");
  std::vector<std::int64_t> strides(rank, 1), ours(rank), index(rank, 0);
  for (std::size_t i = rank; i-- > 1;) strides[i - 1] = strides[i] * torch[i];
  for (std::size_t i = 0; i < rank; ++i) {
    const auto from = static_cast<std::size_t>(param.torch_perm[i]);
    CHECK(from < rank && torch[from] == param.shape[i], param.name + ": our shape is torch's, permuted");
    ours[i] = strides[from];
  }
  const std::int64_t count = ir::elements(param.shape);
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    visit(static_cast<std::size_t>(i), static_cast<std::size_t>(at));
    for (std::size_t d = rank; d-- > 0;) {
      at += ours[d];
      if (++index[d] < param.shape[d]) break;
      at -= ours[d] * param.shape[d];
      index[d] = 0;
    }
  }
}

void check_count(const Param& param, std::span<const double> values) {
  CHECK(
      static_cast<std::int64_t>(values.size()) == ir::elements(param.shape) && ir::elements(param.shape) == ir::elements(param.torch_shape),
      param.name + ": " + std::to_string(values.size()) + " elements for shape " + ir::to_string(param.shape));
}

}  // namespace

std::optional<std::string> canonical_name(std::string_view name) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view wrapper : wrappers)
      if (name.starts_with(wrapper)) name.remove_prefix(wrapper.size()), again = true;
  }
  for (const Row& row : outer_rows)
    if (name == row.torchvision || name == row.timm) return std::string(row.torchvision);
  const auto canonical_layer = [](const LayerName& parts, const Row& row) {
    return std::string(torchvision_layer) + std::to_string(parts.layer) + "." + std::string(row.torchvision);
  };
  if (const auto parts = split_layer(name, torchvision_layer)) {
    for (const Row& row : layer_rows)
      if (parts->rest == row.torchvision || (!row.old.empty() && parts->rest == row.old)) return canonical_layer(*parts, row);
  } else if (const auto timm = split_layer(name, timm_layer)) {
    for (const Row& row : layer_rows)
      if (timm->rest == row.timm) return canonical_layer(*timm, row);
  }
  return std::nullopt;
}

std::string timm_name(std::string_view canonical) {
  for (const Row& row : outer_rows)
    if (canonical == row.torchvision) return std::string(row.timm);
  if (const auto parts = split_layer(canonical, torchvision_layer))
    for (const Row& row : layer_rows)
      if (parts->rest == row.torchvision) return std::string(timm_layer) + std::to_string(parts->layer) + "." + std::string(row.timm);
  CHECK(false, "timm has no name for the parameter " + std::string(canonical));
  return {};
}

std::optional<std::int64_t> layer_of(std::string_view canonical) {
  const auto parts = split_layer(canonical, torchvision_layer);
  return parts ? std::optional(parts->layer) : std::nullopt;
}

std::vector<double> from_torch(const Param& param, std::span<const double> torch_values) {
  check_count(param, torch_values);
  if (param.torch_perm.empty()) return {torch_values.begin(), torch_values.end()};
  std::vector<double> out(torch_values.size());
  for_each_element(param, [&](std::size_t ours, std::size_t torch) { out[ours] = torch_values[torch]; });
  return out;
}

std::vector<double> to_torch(const Param& param, std::span<const double> values) {
  check_count(param, values);
  if (param.torch_perm.empty()) return {values.begin(), values.end()};
  std::vector<double> out(values.size());
  for_each_element(param, [&](std::size_t ours, std::size_t torch) { out[torch] = values[ours]; });
  return out;
}

}  // namespace tessera::models
