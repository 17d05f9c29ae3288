#include "train/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/half.h"
#include "checkpoint/state_tensors.h"
#include "ranks/ranks.h"

namespace tessera::run {
namespace {

template <class T, class F>
BadElements count(std::span<const std::byte> bytes, F&& value) {
  BadElements bad;
  bad.all = static_cast<std::int64_t>(bytes.size() / sizeof(T));
  for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T element;
    std::memcpy(&element, bytes.data() + at, sizeof(T));
    const auto number = value(element);
    bad.nan += std::isnan(number);
    bad.inf += std::isinf(number);
  }
  return bad;
}

std::string text(const BadElements& bad) {
  std::string out;
  if (bad.nan > 0) out += fmt::format("{} NaN", bad.nan);
  if (bad.inf > 0) out += fmt::format("{}{} Inf", out.empty() ? "" : " and ", bad.inf);
  return out + fmt::format(" of {} elements", bad.all);
}

std::string type_text(const ir::Type& type) {
  return std::string(ir::name(type.dtype)) + ir::to_string(type.shape);
}

const char* phase_name(ir::Phase phase) {
  switch (phase) {
    case ir::Phase::forward:
      return "forward";
    case ir::Phase::backward:
      return "backward";
    case ir::Phase::recompute:
      return "recomputed forward";
    case ir::Phase::weight:
      return "backward, of weights";
    case ir::Phase::update:
      return "update";
  }
  return "";
}

// The equation of a step as a person would look it up in `tessera explain`.
std::string describe(const plan::Plan& plan, const plan::Step& step, std::size_t result,
                     const BadElements& bad) {
  if (step.eqn < 0) return fmt::format("a copy that the plan added has {}", text(bad));
  const ir::Program& program = plan.program;
  const ir::Eqn& eqn = program.eqns[static_cast<std::size_t>(step.eqn)];
  std::vector<std::string> operands;
  for (const ir::Var v : eqn.in)
    if (v != ir::none)
      operands.push_back(fmt::format("{} {}", program.name_of(v), type_text(program.type(v))));
  return fmt::format("first bad tensor: {} {} = {}({}) in scope '{}', {} pass, has {}",
                     program.name_of(eqn.out[result]), type_text(program.type(eqn.out[result])),
                     ir::name(eqn.op), join(operands, ", "), eqn.scope, phase_name(eqn.phase),
                     text(bad));
}

// Where a rank's equation stands in the program of all ranks. In that order a bad number only
// spreads to later ones: whoever has the first one is where it began.
double place_in_program(const Compiled& compiled, const plan::Step& step, std::size_t result) {
  const ir::Program& all = compiled.program;
  if (step.eqn < 0) return static_cast<double>(all.eqns.size());
  const std::string& name = compiled.plan.program.name_of(
      compiled.plan.program.eqns[static_cast<std::size_t>(step.eqn)].out[result]);
  const auto found = std::find_if(all.eqns.begin(), all.eqns.end(), [&](const ir::Eqn& e) {
    return std::any_of(e.out.begin(), e.out.end(),
                       [&](ir::Var v) { return v != ir::none && all.name_of(v) == name; });
  });
  return static_cast<double>(found - all.eqns.begin());
}

bool has_bad_state(Session& session) {
  bool bad = false;
  for (const StateTensor& t : state_tensors(session)) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(t.bytes()));
    session.executor().read_persistent(t.buffer, t.offset, bytes);
    bad |= count_bad(bytes, t.dtype).any();
  }
  return Ranks(session.world()).any(bad);
}

}  // namespace

BadElements count_bad(std::span<const std::byte> bytes, ir::DType dtype) {
  switch (dtype) {
    case ir::DType::f64:
      return count<double>(bytes, [](double v) { return v; });
    case ir::DType::f32:
      return count<float>(bytes, [](float v) { return v; });
    case ir::DType::bf16:
      return count<std::uint16_t>(bytes, [](std::uint16_t v) {
        return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16);
      });
    case ir::DType::f16:
      return count<std::uint16_t>(bytes, [](std::uint16_t v) { return from_half(v); });
    default:
      return {};
  }
}

std::string first_bad_tensor(Session& session, const StepInputs& inputs) {
  std::vector<std::string> found;
  if (const BadElements bad = count_bad(std::as_bytes(inputs.images.numbers()), ir::DType::f32);
      bad.any())
    found.push_back("the images already have " + text(bad));
  std::size_t more = 0;
  for (const StateTensor& t : state_tensors(session)) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(t.bytes()));
    session.executor().read_persistent(t.buffer, t.offset, bytes);
    const BadElements bad = count_bad(bytes, t.dtype);
    if (!bad.any()) continue;
    if (found.size() < 3)
      found.push_back(fmt::format("{} {} already has {}", t.name, type_text({t.dtype, t.shape, {}}),
                                  text(bad)));
    else
      ++more;
  }
  if (more > 0) found.push_back(fmt::format("{} more parameters or states have some too", more));
  if (found.empty())
    found.push_back("the images, all parameters and the optimizer's state are finite");

  const Compiled& compiled =
      session.compiled({.goal = Goal::train,
                        .samples = static_cast<std::int64_t>(inputs.labels.size()),
                        .weights = Weights::live,
                        .form = inputs.images.form()});
  const plan::Plan& plan = compiled.plan;
  std::string first;
  double order = 1e300;
  session.observe([&](std::size_t index, const auto& bytes) {
    const plan::Step& step = plan.steps[index];
    if (!first.empty() || plan::is_point_to_point(step.op))
      return;  // what another stage sends is that stage's to tell
    for (std::size_t k = 0; first.empty() && k < step.out.size(); ++k)
      if (const BadElements bad = count_bad(bytes(step.out[k]), step.out[k].type.dtype);
          bad.any()) {
        first = describe(plan, step, k, bad);
        order = place_in_program(compiled, step, k);
      }
  });
  session.train_step(inputs);
  session.observe({});
  found.push_back(first.empty() ? "run again, every tensor of the step is finite" : first);
  const Ranks ranks(session.world());
  const std::vector<double> orders = ranks.gather({&order, 1});
  const auto origin = std::min_element(orders.begin(), orders.end()) - orders.begin();
  const std::string text = ranks.gather_text(join(found, "; "))[static_cast<std::size_t>(origin)];
  return origin == 0 ? text : fmt::format("on rank {}: {}", origin, text);
}

Error not_finite(Session& session, const StepInputs& inputs, const StepResult& last,
                 std::int64_t tries, const std::filesystem::path& saved) {
  const config::Config& config = session.config();
  const bool was_bad = has_bad_state(session);
  return {
      ErrorKind::nonfinite,
      fmt::format(
          "{} steps in a row were not finite and none of them was applied (at step {}: loss {}, "
          "gradient norm {}); {}; {} {}",
          tries, inputs.step, last.loss, std::abs(last.grad_norm),
          first_bad_tensor(session, inputs),
          was_bad
              ? "the state was not finite before the first of them, nor is the newest checkpoint in"
              : "the last good state is in",
          saved.string()),
      config.run.name,
      was_bad ? "start over from other weights (--init, --fresh), or from an older checkpoint if "
                "there is one (`tessera ckpt ls`)"
      : config.precision.dtype == "f32"
          ? "lower optim.lr, set optim.clip = 1.0 or lengthen lr.warmup"
          : "lower optim.lr, set optim.clip = 1.0, lengthen lr.warmup, or use --dtype f32"};
}

}  // namespace tessera::run
