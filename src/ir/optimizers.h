// The optimizers, one row each. Convention: plain data, so that config/ can read it without the
// compiler; the equations of an update are transforms/updates.cpp's function of the row's name.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "ir/role.h"

namespace tessera::ir {

// X(name, what it is, keys of [optim] that it reads beside those that all read, what DeepSpeed
// calls
//   it, the state that it keeps of every weight: {role, name}...)
// Names of states are those of buffers and checkpoints: "m.decay", "adamw.m.head.weight". A type of
// DeepSpeed's is compared in any case, one with '=' before it as it is written.
// clang-format off
#define TESSERA_OPTIMIZERS(X)                                                                    \
  X(adamw, "Adam with decoupled weight decay", "betas|eps", "Adam|AdamW",                        \
    {Role::first_moment, "m"}, {Role::second_moment, "v"})                                       \
  X(sgd, "gradient descent with momentum", "momentum|nesterov", "=SGD",                          \
    {Role::first_moment, "momentum"})                                                            \
  X(lamb, "Adam's direction, each tensor's step in proportion to its norm", "betas|eps", "Lamb", \
    {Role::first_moment, "m"}, {Role::second_moment, "v"})
// clang-format on

// The words of a list "a|b|c".
inline std::vector<std::string_view> words(std::string_view list) {
  std::vector<std::string_view> out;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find('|'), list.size());
    out.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return out;
}

struct OptimizerRow {
  struct State {
    Role role;
    std::string_view name;
  };
  std::string_view name, doc, keys, deepspeed;
  std::vector<State> states;

  bool reads(std::string_view key) const {  // of [optim]
    const std::vector<std::string_view> all = words(keys);
    return std::find(all.begin(), all.end(), key) != all.end();
  }
  std::string_view state_name(Role role) const {  // "" where it keeps none
    for (const State& state : states)
      if (state.role == role) return state.name;
    return "";
  }
};

inline const std::vector<OptimizerRow>& optimizers() {
  static const std::vector<OptimizerRow> rows = {
#define X(name, doc, keys, deepspeed, ...) {#name, doc, keys, deepspeed, {__VA_ARGS__}},
      TESSERA_OPTIMIZERS(X)
#undef X
  };
  return rows;
}
inline const OptimizerRow* find_optimizer(std::string_view name) {  // null: there is none
  for (const OptimizerRow& row : optimizers())
    if (row.name == name) return &row;
  return nullptr;
}

}  // namespace tessera::ir
