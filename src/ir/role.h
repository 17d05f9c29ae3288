// The role of an input or an output: what it holds, whatever it is called. Convention: the text
// form prints a role as `as first_moment of "decay"`; passes and runs ask for roles and never look
// at names.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera::ir {

// The owner of a value: a bucket (something of every parameter in it), one parameter, or the
// step.
enum class Whose : std::uint8_t { step, bucket, parameter };

// clang-format off
#define TESSERA_ROLES(X)                                                                        \
  X(weights, bucket) X(average, bucket) X(first_moment, bucket) X(second_moment, bucket)        \
  X(residual, bucket) X(basis, bucket)              /* what compression keeps */                \
  X(frozen, parameter) X(statistics, parameter) X(average_statistics, parameter)                \
  X(gradient, parameter)                            /* an output */                             \
  X(step, step) X(rate, step) X(key, step)          /* its number, learning rate, random key */ \
  X(loss_scale, step) X(unscale, step)              /* the factor on the loss, and its inverse */ \
  X(pictures, step)                                 /* of the data set; no checkpoint has them */
// clang-format on

enum class Role : std::uint8_t {
  none,
#define X(name, whose) name,
  TESSERA_ROLES(X)
#undef X
};

constexpr Whose whose(Role role) {
  switch (role) {
#define X(name, whose) \
  case Role::name:     \
    return Whose::whose;
    TESSERA_ROLES(X)
#undef X
    case Role::none:
      break;
  }
  return Whose::step;
}
constexpr bool of_bucket(Role role) { return whose(role) == Whose::bucket; }
// Whether a role belongs to a bucket or to a parameter, and says to which.
constexpr bool of_something(Role role) { return whose(role) != Whose::step; }

std::string_view name(Role role);  // "" for none
std::optional<Role> parse_role(std::string_view text);

}  // namespace tessera::ir
