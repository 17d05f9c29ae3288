// ViT: torchvision numbers encoder layers, timm blocks.
#include "models/names.h"

namespace tessera::models {
namespace {

struct Row {
  std::string_view torchvision, timm,
      old;  // old: torchvision before MLPBlock became a Sequential; empty where nothing changed
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
constexpr std::string_view torchvision_layer = "encoder.layers.encoder_layer_",
                           timm_layer = "blocks.";

std::optional<std::string> canonical(std::string_view name) {
  for (const Row& row : outer_rows)
    if (name == row.torchvision || name == row.timm) return std::string(row.torchvision);
  const auto canonical_layer = [](const Numbered& parts, const Row& row) {
    return std::string(torchvision_layer) + std::to_string(parts.number) + "." +
           std::string(row.torchvision);
  };
  if (const auto parts = split_number(name, torchvision_layer)) {
    for (const Row& row : layer_rows)
      if (parts->rest == row.torchvision || (!row.old.empty() && parts->rest == row.old))
        return canonical_layer(*parts, row);
  } else if (const auto timm = split_number(name, timm_layer)) {
    for (const Row& row : layer_rows)
      if (timm->rest == row.timm) return canonical_layer(*timm, row);
  }
  return std::nullopt;
}

std::optional<std::string> timm(std::string_view name) {
  for (const Row& row : outer_rows)
    if (name == row.torchvision) return std::string(row.timm);
  if (const auto parts = split_number(name, torchvision_layer))
    for (const Row& row : layer_rows)
      if (parts->rest == row.torchvision)
        return std::string(timm_layer) + std::to_string(parts->number) + "." +
               std::string(row.timm);
  return std::nullopt;
}

std::optional<Layer> layer(std::string_view name) {
  const auto parts = split_number(name, torchvision_layer);
  return parts ? std::optional(Layer{0, parts->number}) : std::nullopt;
}

}  // namespace

const Names vit_names = {.family = "vit",
                         .canonical = canonical,
                         .timm = timm,
                         .layer = layer,
                         .head_weight = "heads.head.weight",
                         .head_bias = "heads.head.bias",
                         .final_norm = "encoder.ln."};

}  // namespace tessera::models
