#include "exec/cuda/products/choice_text.h"

#include <charconv>
#include <initializer_list>

namespace tessera::exec::cuda {
namespace {

constexpr std::string_view hex_digits = "0123456789abcdef";

std::string list(std::initializer_list<std::int64_t> values) {
  std::string out;
  for (const std::int64_t value : values) {
    if (!out.empty()) out += ',';
    out += std::to_string(value);
  }
  return out;
}

std::string flag(bool on, const char* name) { return on ? std::string(" ") + name : ""; }

const char* name_of(ConvPass pass) {
  switch (pass) {
    case ConvPass::input_grad:
      return "conv_input_grad";
    case ConvPass::filter_grad:
      return "conv_filter_grad";
    case ConvPass::forward:
      break;
  }
  return "conv";
}

// Takes a whole number off the front; nothing where there is none.
std::optional<std::int64_t> number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return {};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}
bool word(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

}  // namespace

std::string key_of(const Product& p) {
  return "product " + std::string(ir::name(p.factors)) + " " +
         (p.right_factor == p.factors ? "" : "by " + std::string(ir::name(p.right_factor)) + " ") +
         std::string(ir::name(p.result)) + " " + list({p.rows, p.cols, p.depth, p.batches}) +
         " left " + list({p.left.outer, p.left.depth, p.left.batch}) + " right " +
         list({p.right.outer, p.right.depth, p.right.batch}) + " d " + list({p.d.col, p.d.batch}) +
         flag(p.tf32, "tf32") + (p.bias ? " bias " + list({p.bias_batch}) : "") +
         flag(p.relu, "relu") + flag(p.gelu, "gelu") + flag(p.before_gelu, "before_gelu") +
         " workspace " + list({p.workspace}) + " align " +
         list({p.align_left, p.align_right, p.align_result});
}

std::string key_of(const DnnConv& c) {
  return std::string(name_of(c.pass)) + " " + std::string(ir::name(c.dtype)) + " images " +
         list({c.b, c.h, c.w, c.c}) + " filters " + list({c.o, c.k, c.l}) + " results " +
         list({c.p, c.q}) + " stride " + list({c.stride}) + " pad " + list({c.pad}) +
         flag(c.tf32, "tf32") + flag(c.any_order, "any_order") + flag(c.finishes, "finishes") +
         flag(c.relu, "relu") + " workspace " + list({c.workspace}) + " align " +
         list({c.align_images, c.align_filters, c.align_results});
}

std::string to_hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte byte : bytes) {
    out += hex_digits[std::to_integer<std::size_t>(byte) >> 4];
    out += hex_digits[std::to_integer<std::size_t>(byte) & 15];
  }
  return out;
}

std::optional<std::vector<std::byte>> from_hex(std::string_view text, std::size_t bytes) {
  if (text.size() != 2 * bytes) return {};
  std::vector<std::byte> out;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const std::size_t high = hex_digits.find(text[i]), low = hex_digits.find(text[i + 1]);
    if (high == text.npos || low == text.npos) return {};
    out.push_back(static_cast<std::byte>(16 * high + low));
  }
  return out;
}

std::string to_text(const DnnEngine& engine) {
  std::string out = "engine ";
  out += std::to_string(engine.index);
  out += " knobs";
  for (const auto& [type, value] : engine.knobs) {
    out += ' ';
    out += std::to_string(type);
    out += '=';
    out += std::to_string(value);
  }
  return out;
}

std::optional<DnnEngine> engine_from(std::string_view text) {
  DnnEngine engine;
  if (!word(text, "engine ")) return {};
  const auto index = number(text);
  if (!index || *index < 0 || !word(text, " knobs")) return {};
  engine.index = *index;
  while (word(text, " ")) {
    const auto type = number(text);
    if (!type || !word(text, "=")) return {};
    const auto value = number(text);
    if (!value || engine.knobs.size() == most_knobs) return {};
    engine.knobs.emplace_back(*type, *value);
  }
  return text.empty() ? std::optional(engine) : std::nullopt;
}

}  // namespace tessera::exec::cuda
