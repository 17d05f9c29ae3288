#include "ir/program.h"

#include <algorithm>

namespace tessera::ir {

std::vector<Type> Program::types(const std::vector<Var>& vars) const {
  std::vector<Type> out;
  out.reserve(vars.size());
  for (Var v : vars) out.push_back(v == none ? Type{DType::u8, {0}, {}} : type(v));
  return out;
}

const Input* Program::input(std::string_view wanted) const {
  for (const Input& in : inputs)
    if (in.name == wanted) return &in;
  return nullptr;
}

const Input* Program::input(Role role, std::string_view of) const {
  for (const Input& in : inputs)
    if (in.role == role && in.of == of) return &in;
  return nullptr;
}

std::string_view name(Role role) {
  static constexpr std::string_view names[] = {"",
#define X(name, whose) #name,
                                               TESSERA_ROLES(X)
#undef X
  };
  return names[static_cast<std::size_t>(role)];
}

std::optional<Role> parse_role(std::string_view text) {
#define X(name, whose) \
  if (text == #name) return Role::name;
  TESSERA_ROLES(X)
#undef X
  return std::nullopt;
}

constexpr std::string_view homes[] = {"device", "host", "file"};

std::string_view name(Home home) { return homes[static_cast<std::size_t>(home)]; }

std::optional<Home> parse_home(std::string_view text) {
  for (std::size_t i = 0; i < std::size(homes); ++i)
    if (text == homes[i]) return static_cast<Home>(i);
  return std::nullopt;
}

bool by_element(const Eqn& e) {
  const std::string text = signature(e.op, e.attrs, static_cast<int>(e.in.size()));
  const std::size_t arrow = text.find("->");
  if (arrow == std::string::npos || arrow + 2 + 2 * e.out.size() - 1 != text.size()) return false;
  return text.find_first_not_of("*,") == arrow &&
         text.find_first_not_of("*,", arrow + 2) == std::string::npos;
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '~' || c == '\'' || c == '/';
}

Cost cost(const Program& p) {
  Cost total;
  for (const Eqn& eqn : p.eqns) {
    const Cost c = cost(eqn.op, eqn.attrs, p.types(eqn.in), p.types(eqn.out));
    total.flops += c.flops;
    total.bytes += c.bytes;
  }
  return total;
}

}  // namespace tessera::ir
