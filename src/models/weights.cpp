#include "models/weights.h"

#include "base/check.h"
#include "models/names.h"

namespace tessera::models {
namespace {

constexpr std::string_view wrappers[] = {"module.", "model.", "_orig_mod."};

const Names& names_of(std::string_view family) {
  static const Names* const all[] = {
#define X(name) &name##_names,
      TESSERA_FAMILIES(X)
#undef X
  };
  for (const Names* names : all)
    if (names->family == family) return *names;
  throw Error(ErrorKind::internal, "there are no names for the family " + std::string(family));
}

std::string_view unwrapped(std::string_view name) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view wrapper : wrappers)
      if (name.starts_with(wrapper)) {
        name.remove_prefix(wrapper.size());
        again = true;
      }
  }
  return name;
}

// Walks torch's elements in the order of ours: element i of our layout lies at torch[visit(i)].
template <class Visit>
void for_each_element(const Param& param, Visit&& visit) {
  const ir::Shape& torch = param.split_shape.empty() ? param.torch_shape : param.split_shape;
  const std::size_t rank = torch.size();
  CHECK(param.torch_perm.size() == rank && param.shape.size() == rank,
        param.name + ": its permutation and its shapes have one rank");
  std::vector<std::int64_t> strides(rank, 1), ours(rank), index(rank, 0);
  for (std::size_t i = rank; i-- > 1;) strides[i - 1] = strides[i] * torch[i];
  for (std::size_t i = 0; i < rank; ++i) {
    const auto from = static_cast<std::size_t>(param.torch_perm[i]);
    CHECK(from < rank && torch[from] == param.shape[i],
          param.name + ": our shape is torch's, permuted");
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
  CHECK(static_cast<std::int64_t>(values.size()) == ir::elements(param.shape) &&
            ir::elements(param.shape) == ir::elements(param.torch_shape),
        param.name + ": " + std::to_string(values.size()) + " elements for shape " +
            ir::to_string(param.shape));
}

}  // namespace

std::optional<NamePart> name_part(std::string_view family, std::string_view name) {
  name = unwrapped(name);
  if (auto whole = names_of(family).canonical(name)) return NamePart{std::move(*whole), 0, 1};
  return from_hf(family, name);
}

std::optional<std::string> canonical_name(std::string_view family, std::string_view name) {
  auto found = name_part(family, name);
  return found && found->parts == 1 ? std::optional(std::move(found->canonical)) : std::nullopt;
}

void settle_names(std::string_view family, NameMap& names) {
  if (const auto settle = names_of(family).settle) settle(names);
}

bool is_ignored(std::string_view family, std::string_view name) {
  const auto ignored = names_of(family).ignored;
  name = unwrapped(name);
  return (ignored && ignored(name)) || ignored_in_hf(family, name);
}

std::string timm_name(std::string_view family, std::string_view canonical) {
  const auto name = names_of(family).timm(canonical);
  CHECK(name, "timm has no name for the parameter " + std::string(canonical));
  return *name;
}

bool is_head(std::string_view family, std::string_view canonical) {
  const Names& names = names_of(family);
  return canonical == names.head_weight || canonical == names.head_bias;
}

std::optional<Layer> layer_of(std::string_view family, std::string_view canonical) {
  return names_of(family).layer(canonical);
}

bool is_inner_linear(const ModelConfig& config, const Param& param) {
  return param.torch_shape.size() == 2 && param.torch_perm.empty() && param.decay &&
         param.name.ends_with("weight") && layer_of(config.family, param.name).has_value();
}

bool is_quantisable(const ModelConfig& config, const Param& param, std::string_view as) {
  return is_inner_linear(config, param) ||
         (as == "int8" && param.shape.size() == 4 && param.torch_shape.size() == 4 &&
          param.torch_perm == std::vector<int>{2, 3, 1, 0} &&
          layer_of(config.family, param.name).has_value());
}

Depth depth_of(const ModelConfig& config, std::string_view canonical) {
  const std::vector<std::int64_t> depths = depths_of(config);
  std::int64_t layers = 0;
  for (const std::int64_t n : depths) layers += n;
  if (is_head(config.family, canonical)) return {layers + 1, 0};
  const auto before = [&](std::int64_t stage) {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < stage; ++i) sum += depths[static_cast<std::size_t>(i)];
    return sum;
  };
  const Names& names = names_of(config.family);
  const auto entrance = names.entrance ? names.entrance(canonical) : std::nullopt;
  std::int64_t below = 0;  // embeddings and stem
  if (const auto layer = layer_of(config.family, canonical))
    below = before(layer->stage) + layer->number + 1;
  else if (entrance)
    below = before(*entrance) + 1;
  else if (!names.final_norm.empty() && canonical.starts_with(names.final_norm))
    below = layers;
  return {below, layers + 1 - below};
}

std::vector<double> from_torch(const Param& param, std::span<const double> torch_values) {
  check_count(param, torch_values);
  if (param.torch_perm.empty()) return {torch_values.begin(), torch_values.end()};
  std::vector<double> out(torch_values.size());
  for_each_element(param,
                   [&](std::size_t ours, std::size_t torch) { out[ours] = torch_values[torch]; });
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
