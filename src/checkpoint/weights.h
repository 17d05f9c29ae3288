// Weights in safetensors files: a file and a model become a ParamSource; a model's parameters
// become a file that PyTorch reads. Convention: a file is compared with the model completely
// (names, dtypes, shapes) before the first number is read; every problem is in one Error(weights).
// Afterwards parameters are read or written one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "files/safetensors.h"
#include "models/config.h"
#include "session/scales.h"
#include "session/session.h"

namespace tessera::run {

// The model that the file says it holds (metadata `tessera.model`); Error(weights) when it does not
// say.
models::ModelConfig model_of(const files::Safetensors& file);

// Changes that are allowed to make a file fit (`--init`). Without any, a file that does not fit
// exactly is refused.
struct Adapt {
  bool interpolate_positions =
      false;  // position embeddings of another grid of patches, bias tables of another window
  bool replace_head = false;  // a head for another number of classes (or none) is drawn anew
  std::uint64_t seed = 0;     // for what is drawn
};

// Reads from the file, which it keeps open. Only tensors whose name starts with `prefix` count
// ("param." for goldens). `notes` gets a line for each adaptation. Names may be torchvision's,
// timm's or Hugging Face's; dtypes F64, F32, BF16 or F16.
ParamSource weights_from(std::shared_ptr<const files::Safetensors> file,
                         const models::ModelConfig& model, const Adapt& adapt,
                         std::vector<std::string>& notes, const std::string& prefix = "");

enum class Naming { torchvision, timm, hf };
// Whole numbers beside the parameters: those that torchvision's Swin has, or also the counts of
// batches that PyTorch's batch norms have.
enum class Extras { usual, counts };

// Writes torch's names and layouts with metadata `tessera.model` and `format: pt`. `values` gives a
// parameter's elements in our layout by its canonical name and is called once for each, in the
// order of the file (a quantised one twice). `dtype` is "F32" or "F64", of what is not `quantised`;
// `classes` and `preprocess` (a JSON object: what evaluation and prediction do with an image) are
// kept as metadata. Error(disk) when it cannot be written.
void save_weights(const std::filesystem::path& path, const models::ModelConfig& model,
                  const std::function<std::vector<double>(const std::string& name)>& values,
                  Naming naming = Naming::torchvision, const std::string& dtype = "F32",
                  const std::vector<std::string>& classes = {}, const std::string& preprocess = {},
                  Extras extras = Extras::usual, const Quantised& quantised = {});

// The names of the classes that the file carries (metadata `tessera.classes`), else their numbers.
std::vector<std::string> class_names_of(const files::Safetensors& file,
                                        const models::ModelConfig& model);

}  // namespace tessera::run
