// The table of the rows of `bench layers`, for every family of models, and how it is looked up.
#include "measure/layers.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "ir/op.h"

namespace tessera::run {
namespace {

using Words = std::vector<std::string_view>;

Words words_of(std::string_view text, char at) {
  Words parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(at), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// An equation belongs to the first rule that fits it.
struct LayerRule {
  std::string_view scope;  // the words at the end of its scope: '#' stands for a number, '*' at the
                           // end for whatever follows
  std::string_view ops;    // one of these; "": any
  std::string_view result;  // a word of a result's name is one of these; "": any
  std::string_view row;  // '#': the first number of the scope; '~': what a convolution does at once
};
constexpr LayerRule layer_rules[] = {
    {"input", "", "", "normalise"},
    // ViT and Swin
    {"embeddings", "", "", "embeddings"},
    {"blocks.#.msa", "", "softmax|narrow", "msa.softmax"},
    {"blocks.#.*", "cast", "", "casts"},  // bf16
    {"blocks.#.ln_1", "", "", "ln_1"},
    {"blocks.#.msa", "window|unwindow|bias_table|window_mask", "", "msa.windows"},  // Swin
    {"blocks.#.msa", "attention", "", "msa.scores+softmax+values"},
    {"blocks.#.msa", "", "scores|scaled|biased|masked", "msa.scores"},
    {"blocks.#.msa", "", "o", "msa.values"},
    {"blocks.#.msa", "", "qkv_|qkv|q|k|v", "msa.qkv"},
    {"blocks.#.msa", "", "proj_|proj|class", "msa.projection"},  // of the class token alone
    {"blocks.#.residual_1", "add_norm", "ln_2", "residual_1+ln_2"},
    {"blocks.#.residual_1", "", "", "residual_1"},
    {"blocks.#.ln_2", "", "", "ln_2"},
    {"blocks.#.mlp", "", "", "mlp"},
    {"blocks.#.residual_2", "add_norm", "ln_1", "residual_2+ln_1"},  // of the next layer
    {"blocks.#.residual_2", "add_norm", "ln_final", "residual_2+ln_final"},
    {"blocks.#.residual_2", "", "", "residual_2"},
    {"stages.#.merge", "", "", "merge"},
    {"ln_final", "", "", "ln_final"},
    {"head", "", "", "head"},
    // ResNet
    {"stem.*", "", "", "stem"},
    {"layer#.#.*", "cast", "", "stage#.casts"},
    {"layer#.#.downsample.*", "", "", "stage#.downsample"},
    {"layer#.#.*", "conv", "", "stage#.~"},
    {"layer#.#.*", "batch_norm_fixed|batch_norm_scale", "", "stage#.norm"},
    {"layer#.#.*", "relu", "", "stage#.activation"},
    {"layer#.#.*", "add", "", "stage#.residual"},
};

bool listed(std::string_view names, std::string_view name) {
  const Words all = words_of(names, '|');
  return all.empty() || std::find(all.begin(), all.end(), name) != all.end();
}

// "layer#" fits "layer2": the number is "2"; a word without '#' fits itself.
bool fits_word(std::string_view pattern, std::string_view word, std::string& number) {
  const std::size_t at = pattern.find('#');
  if (at == pattern.npos) return pattern == word;
  if (word.size() <= at || word.substr(0, at) != pattern.substr(0, at)) return false;
  const std::string_view digits = word.substr(at);
  if (!std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c); }))
    return false;
  if (number.empty()) number = digits;
  return true;
}

struct ScopeMatch {
  std::string place, number;
};
// Where a rule's words stand in the scope; nothing when they do not stand at its end.
std::optional<ScopeMatch> find_scope(std::string_view pattern, std::string_view scope) {
  Words wanted = words_of(pattern, '.'), words = words_of(scope, '.');
  const bool open = wanted.back() == "*";
  if (open) wanted.pop_back();
  for (std::size_t start = 0; start + wanted.size() <= words.size(); ++start) {
    if (!open && start + wanted.size() != words.size()) continue;
    ScopeMatch found;
    std::size_t last = 0, matched = 0;  // the words up to the last number
    while (matched < wanted.size() &&
           fits_word(wanted[matched], words[start + matched], found.number))
      if (wanted[matched++].find('#') != std::string_view::npos) last = start + matched;
    if (matched < wanted.size()) continue;
    for (std::size_t i = 0; i < last; ++i)
      found.place += (i == 0 ? "" : ".") + std::string(words[i]);
    return found;
  }
  return std::nullopt;
}

bool has_result(const ir::Program& program, const ir::Eqn& eqn, std::string_view names) {
  if (names.empty()) return true;
  for (const ir::Var v : eqn.out) {
    if (v == ir::none) continue;
    const std::string& name = program.name_of(v);
    for (const std::string_view word :
         words_of(std::string_view(name).substr(0, name.find('~')), '.'))
      if (listed(names, word)) return true;
  }
  return false;
}

// "conv", or with what was folded into it: "conv+norm+residual+activation".
std::string work_of_conv(const ir::Eqn& eqn) {
  const auto& attr = std::get<ir::Conv>(eqn.attrs);
  const std::size_t factors = 2 + static_cast<std::size_t>(attr.scales);
  std::string work = eqn.in.size() > factors ? "conv+norm" : "conv";
  if (eqn.in.size() > factors + 2) work += "+residual";
  return attr.relu ? work + "+activation" : work;
}

}  // namespace

LayerPart layer_part(const ir::Program& program, const ir::Eqn& eqn) {
  for (const LayerRule& rule : layer_rules) {
    if (!listed(rule.ops, ir::name(eqn.op)) || !has_result(program, eqn, rule.result)) continue;
    const std::optional<ScopeMatch> found = find_scope(rule.scope, eqn.scope);
    if (!found) continue;
    LayerPart part{"", found->place};
    for (const char c : rule.row)
      part.row += c == '#' ? found->number : c == '~' ? work_of_conv(eqn) : std::string(1, c);
    return part;
  }
  return {other_part, ""};
}

LayerRows layer_rows(const plan::Plan& plan) {
  LayerRows out;
  std::map<std::string, std::size_t> index;
  std::vector<std::set<std::string>> places;
  for (const plan::Step& step : plan.steps) {
    if (step.eqn < 0) {
      out.of_step.push_back(LayerRows::rest);
      continue;
    }
    const LayerPart part =
        layer_part(plan.program, plan.program.eqns[static_cast<std::size_t>(step.eqn)]);
    const auto [it, fresh] = index.emplace(part.row, out.rows.size());
    if (fresh) {
      out.rows.push_back({part.row});
      places.emplace_back();
    }
    places[it->second].insert(part.place);
    std::vector<ir::Type> in, of;
    for (const plan::Slot& slot : step.in) in.push_back(slot.type);
    for (const plan::Slot& slot : step.out) of.push_back(slot.type);
    out.rows[it->second].flops += ir::cost(step.op, step.attrs, in, of).flops;
    out.of_step.push_back(it->second);
  }
  for (std::size_t i = 0; i < out.rows.size(); ++i)
    out.rows[i].count = static_cast<std::int64_t>(places[i].size());
  return out;
}

}  // namespace tessera::run
