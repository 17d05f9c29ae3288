// Comparison with another framework's numbers: a golden file holds weights, a batch, and what came
// out (docs/cli.md, "Goldens").
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/say.h"
#include "base/threads.h"
#include "checkpoint/weights.h"
#include "compile/compile.h"
#include "config/reader.h"
#include "exec/executor.h"
#include "files/safetensors.h"
#include "files/safetensors_header.h"  // in_quotes
#include "models/weights.h"
#include "report/console.h"
#include "report/document.h"
#include "session/bytes.h"
#include "verbs/verbs.h"

namespace tessera::run {
namespace {

// ‖got - want‖ / ‖want‖; the plain norm of the difference where the reference is all zeros.
double relative_error(const std::vector<double>& got, const std::vector<double>& want) {
  double difference = 0, reference = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    reference += want[i] * want[i];
  }
  return reference > 0 ? std::sqrt(difference / reference) : std::sqrt(difference);
}

constexpr const char* format_hint =
    "tools/make_goldens.py writes the format that docs/cli.md describes";

[[noreturn]] void refuse(const std::string& golden, const std::string& what) {
  throw Error(ErrorKind::weights, what, golden, format_hint);
}

// A golden that says something we do not read would pass for one that was compared. All that is
// wrong comes at once.
void check_names_and_dtypes(const files::Safetensors& file,
                            const std::vector<models::Param>& params) {
  std::set<std::string> floats = {"input", "logits", "loss"};
  for (const models::Param& p : params) floats.insert((p.buffer ? "after." : "grad.") + p.name);
  std::vector<std::string> strangers, problems;
  for (const auto& [name, tensor] : file.tensors()) {
    const bool whole = tensor.dtype.starts_with("I") || tensor.dtype.starts_with("U");
    if (name.starts_with("param.")) continue;  // compared with the model where they are read
    if (name != "labels" && !floats.contains(name))
      strangers.push_back(files::in_quotes(name));
    else if (name == "labels" ? !whole : tensor.dtype != "F32" && tensor.dtype != "F64")
      problems.push_back(fmt::format("tensor '{}' is {}, expected {}", name, tensor.dtype,
                                     name == "labels" ? "I64" : "F32 or F64"));
  }
  constexpr std::size_t most = 50;
  if (!strangers.empty()) {
    const std::size_t count = strangers.size();
    if (count > most) {
      strangers.resize(most);
      strangers.push_back(fmt::format("{} more", count - most));
    }
    problems.insert(problems.begin(),
                    fmt::format("{} of the tensors mean{} nothing in a golden of this model: {}",
                                count, count == 1 ? "s" : "", join(strangers, ", ")));
  }
  if (problems.empty()) return;
  Error error(ErrorKind::weights, problems[0], file.path().string(), format_hint);
  for (std::size_t i = 1; i < std::min(problems.size(), most); ++i) error.and_also(problems[i]);
  throw error;
}

void check_shape(const std::string& golden, const std::string& name, const files::TensorPlace& t,
                 const std::vector<std::int64_t>& want) {
  if (t.shape != want)
    refuse(golden, "tensor '" + name + "' is " + ir::to_string(t.shape) + ", expected " +
                       ir::to_string(want));
}

std::vector<double> nchw_to_nhwc(const std::vector<double>& x, const std::vector<std::int64_t>& s) {
  std::vector<double> out(x.size());
  std::size_t from = 0;
  for (std::int64_t n = 0; n < s[0]; ++n)
    for (std::int64_t c = 0; c < s[1]; ++c)
      for (std::int64_t h = 0; h < s[2]; ++h)
        for (std::int64_t w = 0; w < s[3]; ++w)
          out[static_cast<std::size_t>(((n * s[2] + h) * s[3] + w) * s[1] + c)] = x[from++];
  return out;
}

// The labels, once the shapes of what every golden holds are those of the model.
std::vector<double> checked_labels(const files::Safetensors& file, const std::string& golden,
                                   const models::ModelConfig& m) {
  const files::TensorPlace& input = file.at("input");
  const std::int64_t batch = input.shape.empty() ? 0 : input.shape[0];
  if (batch < 1) refuse(golden, "tensor 'input' holds no image");
  check_shape(golden, "input", input, {batch, m.channels, m.image_h, m.image_w});
  check_shape(golden, "labels", file.at("labels"), {batch});
  check_shape(golden, "logits", file.at("logits"), {batch, m.classes});
  check_shape(golden, "loss", file.at("loss"), {1});
  std::vector<double> labels = files::to_doubles(file.read("labels"), "labels");
  for (double label : labels)
    if (!(label >= 0 && label < static_cast<double>(m.classes)))
      refuse(golden, fmt::format("label {} is not a class of 0 to {}", label, m.classes - 1));
  return labels;
}

// Unless told, a golden is compared in the element type that it was stored in.
std::string dtype_for(const files::Safetensors& file, const std::string& asked) {
  if (!asked.empty()) return asked;
  return file.has("logits") && file.at("logits").dtype == "F32" ? "f32" : "f64";
}

// f16 keeps 11 bits of a number, bf16 8: its tolerances are an eighth.
double by_dtype(const std::string& dtype, double f64, double f32, double bf16) {
  return dtype == "f64" ? f64 : dtype == "f32" ? f32 : dtype == "f16" ? bf16 / 8 : bf16;
}

}  // namespace

std::vector<Comparison> compare_golden(const VerifyOptions& given) {
  const auto file = std::make_shared<const files::Safetensors>(given.golden);
  VerifyOptions options = given;
  options.dtype = dtype_for(*file, given.dtype);
  // Said here: the words of other verbs advise flags that this one does not have.
  if (!file->metadata().contains("tessera.model"))
    refuse(options.golden,
           "the file does not say which model it holds: metadata 'tessera.model' is absent");
  config::Config config;
  config.model = model_of(*file);
  config.precision.dtype = options.dtype;
  config.run.threads = options.threads > 0 ? options.threads : available_cores();
  config.run.device = options.device;
  const models::ModelConfig& m = config.model;
  const std::vector<models::Param> params = models::parameters(m);
  for (const char* name : {"input", "labels", "logits", "loss"})
    if (!file->has(name)) refuse(options.golden, "tensor '" + std::string(name) + "' is missing");
  check_names_and_dtypes(*file, params);
  const std::vector<double> labels = checked_labels(*file, options.golden, m);
  const files::TensorPlace& input = file->at("input");
  const std::int64_t batch = input.shape[0];
  std::vector<std::string> notes;
  const ParamSource source = weights_from(file, m, Adapt{}, notes, "param.");
  auto executor = exec::make_executor(config.run.device, static_cast<int>(config.run.threads));
  const plan::Plan plan = compile(config, Goal::gradients, {batch}, executor->target()).plan;
  const auto loaded = executor->load(plan);
  const ir::DType real = storage_dtype(config);
  for (const models::Param& p : params)
    executor->write_persistent(p.name, 0, encode(source(p), real));
  loaded->write(
      "images",
      encode(nchw_to_nhwc(files::to_doubles(file->read("input"), "input"), input.shape), real));
  loaded->write("labels", encode(labels, ir::DType::i32));
  loaded->write("inv_count", encode(std::vector{1.0 / static_cast<double>(batch)}, real));
  loaded->run();

  auto output = [&](const std::string& name) {
    const ir::Type& type = plan.output(name)->slot.type;
    std::vector<std::byte> bytes(static_cast<std::size_t>(type.bytes()));
    loaded->read(name, bytes);
    return decode(bytes, type.dtype);
  };
  // A tensor that was stored in f32 cannot be met more closely than its own rounding.
  auto at_least_rounding = [&](const std::string& name, double tolerance) {
    return file->at(name).dtype == "F32" ? std::max(tolerance, 0x1.0p-23) : tolerance;
  };
  const double logits_tolerance = by_dtype(options.dtype, 1e-9, 1e-5, 5e-2);
  const double grad_tolerance = by_dtype(options.dtype, 1e-9, 2e-5, 3e-2);
  std::vector<Comparison> out;
  out.push_back(
      {"logits",
       relative_error(output("logits"), files::to_doubles(file->read("logits"), "logits")),
       at_least_rounding("logits", logits_tolerance)});
  out.push_back({"loss",
                 relative_error(output("loss"), files::to_doubles(file->read("loss"), "loss")),
                 at_least_rounding("loss", logits_tolerance)});
  std::vector<std::string> without;
  // A ReLU that rounding flips makes a whole gradient another one: in bf16 and f16 its logits are
  // compared, nothing behind them.
  const bool only_logits = models::family_of(m).relu && ir::is_low(ir::parse_dtype(options.dtype));
  for (const models::Param& p : params) {
    if (only_logits) break;
    const std::string name = (p.buffer ? "after." : "grad.") + p.name;
    if (!file->has(name)) {
      without.push_back(name);
      continue;
    }
    check_shape(options.golden, name, file->at(name), p.torch_shape);
    out.push_back({name,
                   relative_error(output(p.buffer ? p.name : name),
                                  models::from_torch(p, files::to_doubles(file->read(name), name))),
                   at_least_rounding(name, grad_tolerance)});
  }
  if (!without.empty())
    refuse(options.golden,
           fmt::format("{} of {} gradients and running statistics are missing, the first is '{}'",
                       without.size(), params.size(), without[0]));
  return out;
}

int verify(const VerifyOptions& given) {
  const std::vector<Comparison> all = compare_golden(given);
  VerifyOptions options = given;
  options.dtype = dtype_for(files::Safetensors(given.golden), given.dtype);
  std::size_t failed = 0;
  const Comparison* worst = &all[0];
  for (const Comparison& c : all) {
    failed += !c.ok();
    // An error of NaN is worst of all, and stays it: nothing compares with it.
    if (!std::isnan(worst->error) && !(c.error / c.tolerance <= worst->error / worst->tolerance))
      worst = &c;
  }
  if (options.json) {
    nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
    for (const Comparison& c : all)
      tensors.push_back(
          {{"name", c.name}, {"error", c.error}, {"tolerance", c.tolerance}, {"ok", c.ok()}});
    report::print_document({{"golden", options.golden},
                            {"dtype", options.dtype},
                            {"ok", failed == 0},
                            {"failed", failed},
                            {"tensors", tensors}});
  } else {
    std::size_t width = 0;
    for (const Comparison& c : all) width = std::max(width, c.name.size());
    for (const Comparison& c : all)
      say(stdout, "{:{}} {:10.2e}  {}\n", c.name, width, c.error,
          c.ok() ? "ok" : fmt::format("FAILED (tolerance {:.0e})", c.tolerance));
    report::say_sentence(
        "{} of {} tensors within tolerance in {}; the worst is {} at {:.2e} of {:.0e}\n",
        all.size() - failed, all.size(), options.dtype, worst->name, worst->error,
        worst->tolerance);
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace tessera::run
