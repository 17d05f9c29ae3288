// `tessera ckpt export`: weights as a folder that others read: model.safetensors, config.json,
// preprocessor_config.json, or model.onnx. Convention: tensors carry torchvision's, timm's or
// Hugging Face's names and torch's layouts; config.json says which, and holds our model section
// too.
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/say.h"
#include "checkpoint/weights.h"
#include "checkpoint/weights_open.h"
#include "files/text.h"
#include "report/console.h"
#include "verbs/export_naming.h"
#include "verbs/export_onnx.h"
#include "verbs/verbs.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

void make_folder(const fs::path& out) {
  std::error_code error;
  fs::create_directories(out, error);
  if (error)
    throw Error(ErrorKind::disk, "cannot make the folder: " + error.message(), out.string(),
                "choose another folder with --out");
}

std::string document_text(const ordered_json& j) {
  return j.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

// Refuses flags that do not go together.
void check_export(const CkptOptions& options) {
  const bool low = options.dtype == "bf16" || options.dtype == "f16";
  const auto refuse = [](const std::string& what, const char* cure) {
    throw Error(ErrorKind::usage, what, "ckpt export", cure);
  };
  if (low && !options.onnx)
    refuse("--dtype " + options.dtype + " is for --onnx; safetensors are written in f32 or f64",
           "add --onnx, or choose f32");
  if (options.dtype == "f64" && options.onnx)
    refuse("--dtype f64 with --onnx", "an ONNX file holds f32, bf16 or f16");
  if (options.preprocess && !options.onnx)
    refuse("--preprocess is for --onnx", "other namings carry it in a file of its own");
}

void export_weights(const OpenedWeights& w, const CkptOptions& options) {
  refuse_unsayable(w, options.naming);
  const fs::path out = options.out;
  make_folder(out);
  std::map<std::string, models::Param> params;
  for (models::Param& p : models::parameters(w.model)) params.emplace(p.name, p);
  save_weights(
      out / "model.safetensors", w.model,
      [&](const std::string& name) { return w.source(params.at(name)); }, naming_of(options.naming),
      options.dtype == "f64" ? "F64" : "F32", w.classes, w.preprocess.dump(),
      options.naming == "tessera" ? Extras::usual : Extras::counts);
  files::write_atomically(out / "config.json",
                          document_text(export_config(w, options.naming, options.dtype)));
  files::write_atomically(out / "preprocessor_config.json", document_text(export_preprocessor(w)));
}

}  // namespace

int ckpt_export(const CkptOptions& options) {
  check_export(options);
  const OpenedWeights w = open_weights(options.path, {}, options.best);
  const std::size_t tensors = models::parameters(w.model).size();
  if (options.onnx) {
    const std::string bytes = onnx_of(w, {options.dtype, options.preprocess});
    make_folder(options.out);
    files::write_atomically(fs::path(options.out) / "model.onnx", bytes);
  } else {
    export_weights(w, options);
  }
  for (const std::string& note : w.notes) report::say_note(note);
  if (!w.assumed.empty()) report::say_note(w.assumed);
  const std::string naming = options.onnx ? "onnx" : options.naming;
  if (options.json)
    say_json(stdout, document_text({{"from", w.from.string()},
                                    {"out", options.out},
                                    {"naming", naming},
                                    {"dtype", options.dtype},
                                    {"tensors", tensors}}));
  else
    report::say_sentence("{} -> {}: {} tensors, {}, {}\n", w.from.string(), options.out, tensors,
                         options.onnx ? std::string("ONNX") : naming + " names", options.dtype);
  return 0;
}

}  // namespace tessera::run
