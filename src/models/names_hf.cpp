// Hugging Face's names of all three families. Its transformers keep query, key and value apart
// where torchvision and timm have one matrix, so a canonical name may stand for three of its.
// Swin's mergings belong to the stage before them there.
#include "base/check.h"
#include "models/names.h"

namespace tessera::models {
namespace {

struct HfRow {
  std::string_view canonical, hf;
  // The three parts of one matrix; `hf` is then what stands before the part's name.
  bool attention = false;
};
constexpr std::string_view attention_parts[] = {"query", "key", "value"};

constexpr HfRow hf_vit_outer[] = {
    {"class_token", "embeddings.cls_token"},
    {"conv_proj.weight", "embeddings.patch_embeddings.projection.weight"},
    {"conv_proj.bias", "embeddings.patch_embeddings.projection.bias"},
    {"encoder.pos_embedding", "embeddings.position_embeddings"},
    {"encoder.ln.weight", "layernorm.weight"},
    {"encoder.ln.bias", "layernorm.bias"},
    {"heads.head.weight", "classifier.weight"},
    {"heads.head.bias", "classifier.bias"},
};
// After "encoder.layers.encoder_layer_N." and "encoder.layer.N.".
constexpr HfRow hf_vit_layer[] = {
    {"ln_1.weight", "layernorm_before.weight"},
    {"ln_1.bias", "layernorm_before.bias"},
    {"self_attention.in_proj_weight", "attention.attention.*.weight", true},
    {"self_attention.in_proj_bias", "attention.attention.*.bias", true},
    {"self_attention.out_proj.weight", "attention.output.dense.weight"},
    {"self_attention.out_proj.bias", "attention.output.dense.bias"},
    {"ln_2.weight", "layernorm_after.weight"},
    {"ln_2.bias", "layernorm_after.bias"},
    {"mlp.0.weight", "intermediate.dense.weight"},
    {"mlp.0.bias", "intermediate.dense.bias"},
    {"mlp.3.weight", "output.dense.weight"},
    {"mlp.3.bias", "output.dense.bias"},
};

constexpr HfRow hf_swin_outer[] = {
    {"features.0.0.weight", "embeddings.patch_embeddings.projection.weight"},
    {"features.0.0.bias", "embeddings.patch_embeddings.projection.bias"},
    {"features.0.2.weight", "embeddings.norm.weight"},
    {"features.0.2.bias", "embeddings.norm.bias"},
    {"norm.weight", "layernorm.weight"},
    {"norm.bias", "layernorm.bias"},
    {"head.weight", "classifier.weight"},
    {"head.bias", "classifier.bias"},
};
// After "features.(2 S + 1).N." and "encoder.layers.S.blocks.N.".
constexpr HfRow hf_swin_block[] = {
    {"norm1.weight", "layernorm_before.weight"},
    {"norm1.bias", "layernorm_before.bias"},
    {"attn.relative_position_bias_table", "attention.self.relative_position_bias_table"},
    {"attn.qkv.weight", "attention.self.*.weight", true},
    {"attn.qkv.bias", "attention.self.*.bias", true},
    {"attn.proj.weight", "attention.output.dense.weight"},
    {"attn.proj.bias", "attention.output.dense.bias"},
    {"norm2.weight", "layernorm_after.weight"},
    {"norm2.bias", "layernorm_after.bias"},
    {"mlp.0.weight", "intermediate.dense.weight"},
    {"mlp.0.bias", "intermediate.dense.bias"},
    {"mlp.3.weight", "output.dense.weight"},
    {"mlp.3.bias", "output.dense.bias"},
};
// After "features.(2 S + 2)." and "encoder.layers.S.".
constexpr HfRow hf_swin_merging[] = {
    {"norm.weight", "downsample.norm.weight"},
    {"norm.bias", "downsample.norm.bias"},
    {"reduction.weight", "downsample.reduction.weight"},
};

constexpr HfRow hf_resnet_outer[] = {
    {"conv1.", "embedder.embedder.convolution."},
    {"bn1.", "embedder.embedder.normalization."},
    {"fc.", "classifier.1."},
};
// After "layerS." and "encoder.stages.(S - 1).layers.".
constexpr HfRow hf_resnet_block[] = {
    {"conv1.", "layer.0.convolution."},         {"bn1.", "layer.0.normalization."},
    {"conv2.", "layer.1.convolution."},         {"bn2.", "layer.1.normalization."},
    {"conv3.", "layer.2.convolution."},         {"bn3.", "layer.2.normalization."},
    {"downsample.0.", "shortcut.convolution."}, {"downsample.1.", "shortcut.normalization."},
};
constexpr std::string_view resnet_endings[] = {"weight", "bias", "running_mean", "running_var"};

std::string joined(std::string_view a, std::string_view b) {
  return std::string(a) + std::string(b);
}
std::string numbered(std::string_view prefix, std::int64_t number, std::string_view rest) {
  return std::string(prefix) + std::to_string(number) + "." + std::string(rest);
}

// "attention.self.*.weight" with a part's name in the place of the star.
std::string with_part(std::string_view pattern, std::string_view part) {
  const std::size_t star = pattern.find('*');
  return joined(pattern.substr(0, star), part) + std::string(pattern.substr(star + 1));
}

// Calls found(row, part) where `rest` is the name of a row.
template <class Rows, class Found>
std::optional<NamePart> match_rows(const Rows& rows, std::string_view rest, const Found& found) {
  for (const HfRow& row : rows) {
    if (!row.attention && rest == row.hf) return NamePart{found(row.canonical), 0, 1};
    for (int part = 0; row.attention && part < 3; ++part)
      if (rest == with_part(row.hf, attention_parts[part]))
        return NamePart{found(row.canonical), part, 3};
  }
  return std::nullopt;
}

std::optional<NamePart> from_hf_vit(std::string_view name) {
  if (const auto layer = split_number(name, "encoder.layer."))
    return match_rows(hf_vit_layer, layer->rest, [&](std::string_view row) {
      return numbered("encoder.layers.encoder_layer_", layer->number, row);
    });
  return match_rows(hf_vit_outer, name, [](std::string_view row) { return std::string(row); });
}

std::optional<NamePart> from_hf_swin(std::string_view name) {
  const auto stage = split_number(name, "encoder.layers.");
  if (!stage)
    return match_rows(hf_swin_outer, name, [](std::string_view row) { return std::string(row); });
  if (const auto block = split_number(stage->rest, "blocks."))
    return match_rows(hf_swin_block, block->rest, [&](std::string_view row) {
      return numbered("features.", 2 * stage->number + 1, numbered("", block->number, row));
    });
  return match_rows(hf_swin_merging, stage->rest, [&](std::string_view row) {
    return numbered("features.", 2 * stage->number + 2, row);
  });
}

// Rows of ResNet are beginnings, before what a convolution or a norm holds.
template <class Rows>
std::optional<std::string> resnet_row(const Rows& rows, std::string_view rest, bool to_hf) {
  for (const HfRow& row : rows) {
    const std::string_view from = to_hf ? row.canonical : row.hf,
                           to = to_hf ? row.hf : row.canonical;
    if (!rest.starts_with(from)) continue;
    for (const std::string_view ending : resnet_endings)
      if (rest.substr(from.size()) == ending) return joined(to, ending);
  }
  return std::nullopt;
}

std::optional<NamePart> from_hf_resnet(std::string_view name) {
  std::optional<std::string> row = resnet_row(hf_resnet_outer, name, false);
  if (const auto stage = split_number(name, "encoder.stages."))
    if (const auto block = split_number(stage->rest, "layers."))
      if (const auto rest = resnet_row(hf_resnet_block, block->rest, false))
        row = numbered("layer", stage->number + 1, numbered("", block->number, *rest));
  return row ? std::optional(NamePart{*row, 0, 1}) : std::nullopt;
}

template <class Rows>
std::vector<std::string> row_names(const Rows& rows, std::string_view rest,
                                   const std::string& prefix) {
  for (const HfRow& row : rows) {
    if (rest != row.canonical) continue;
    if (!row.attention) return {prefix + std::string(row.hf)};
    std::vector<std::string> out;
    for (const std::string_view part : attention_parts)
      out.push_back(prefix + with_part(row.hf, part));
    return out;
  }
  return {};
}

// Every tensor but the classifier's stands below the family's name.
template <class Rows>
std::vector<std::string> outer_names(const Rows& rows, std::string_view name,
                                     std::string_view family) {
  std::vector<std::string> out = row_names(rows, name, "");
  for (std::string& one : out)
    if (!one.starts_with("classifier.")) one = joined(family, "." + one);
  return out;
}

std::vector<std::string> to_hf_vit(std::string_view name) {
  if (const auto layer = split_number(name, "encoder.layers.encoder_layer_"))
    return row_names(hf_vit_layer, layer->rest, numbered("vit.encoder.layer.", layer->number, ""));
  return outer_names(hf_vit_outer, name, "vit");
}

std::vector<std::string> to_hf_swin(std::string_view name) {
  const auto part = split_number(name, "features.");
  if (!part || part->number == 0) return outer_names(hf_swin_outer, name, "swin");
  const std::string stage = numbered("swin.encoder.layers.", (part->number - 1) / 2, "");
  if (part->number % 2 == 0) return row_names(hf_swin_merging, part->rest, stage);
  const auto block = split_number(part->rest, "");
  if (!block) return {};
  return row_names(hf_swin_block, block->rest, numbered(stage + "blocks.", block->number, ""));
}

std::vector<std::string> to_hf_resnet(std::string_view name) {
  if (const auto stage = split_number(name, "layer"); stage && stage->number > 0)
    if (const auto block = split_number(stage->rest, ""))
      if (const auto rest = resnet_row(hf_resnet_block, block->rest, true))
        return {numbered("resnet.encoder.stages.", stage->number - 1,
                         numbered("layers.", block->number, *rest))};
  const auto outer = resnet_row(hf_resnet_outer, name, true);
  if (!outer) return {};
  return {outer->starts_with("classifier.") ? *outer : "resnet." + *outer};
}

struct HfFamily {
  std::string_view family;
  std::optional<NamePart> (*from)(std::string_view);
  std::vector<std::string> (*to)(std::string_view);
};
constexpr HfFamily hf_families[] = {{"vit", from_hf_vit, to_hf_vit},
                                    {"swin", from_hf_swin, to_hf_swin},
                                    {"resnet", from_hf_resnet, to_hf_resnet}};

const HfFamily& hf_family(std::string_view family) {
  for (const HfFamily& one : hf_families)
    if (one.family == family) return one;
  throw Error(ErrorKind::internal,
              "there are no Hugging Face names for the family " + std::string(family));
}

}  // namespace

std::optional<NamePart> from_hf(std::string_view family, std::string_view name) {
  if (name.starts_with(family) && name.substr(family.size()).starts_with("."))
    name.remove_prefix(family.size() + 1);
  return hf_family(family).from(name);
}

bool ignored_in_hf(std::string_view family, std::string_view name) {
  // The pooler of a bare encoder, which a classifier does not read.
  if (name.starts_with(family) && name.substr(family.size()).starts_with("."))
    name.remove_prefix(family.size() + 1);
  return family == "vit" && (name == "pooler.dense.weight" || name == "pooler.dense.bias");
}

std::vector<std::string> hf_names(std::string_view family, std::string_view canonical) {
  std::vector<std::string> names = hf_family(family).to(canonical);
  CHECK(!names.empty(), "Hugging Face has no name for the parameter " + std::string(canonical));
  return names;
}

}  // namespace tessera::models
