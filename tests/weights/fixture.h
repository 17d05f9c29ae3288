// A small ViT, a small Swin, a set of numbers for its parameters, and files made from them with one
// thing wrong.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <memory>

#include "base/rng.h"
#include "checkpoint/weights.h"
#include "files/safetensors.h"
#include "files/scratch.h"
#include "models/model.h"
#include "models/weights.h"

namespace tessera::test {

inline models::ModelConfig small_vit() {
  models::ModelConfig m = models::preset("vit_tiny_cifar");
  m.image_h = 12;
  m.image_w = 12;
  m.patch = 4;
  m.dim = 12;
  m.depth = 2;
  m.heads = 3;
  m.mlp = 20;
  m.classes = 5;
  return m;
}

inline models::ModelConfig small_swin() {
  models::ModelConfig m = models::preset("swin_micro");
  m.image_h = 12;
  m.image_w = 10;
  m.patch = 2;
  m.dim = 6;
  m.depths = {2, 1, 1};
  m.stage_heads = {2, 3, 4};
  m.window_h = m.window_w = 3;
  m.classes = 5;
  return m;
}

// Numbers that f32 holds exactly, different for every parameter and element, in our layout.
inline std::vector<double> numbers(const std::string& name, std::int64_t count) {
  std::vector<double> out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<double>(uniform(Key{}.with(name), i)) - 0.5;
  return out;
}

inline std::function<std::vector<double>(const std::string&)> numbers_of(
    const models::ModelConfig& m) {
  std::map<std::string, std::int64_t> counts;
  for (const models::Param& p : models::parameters(m)) counts[p.name] = ir::elements(p.shape);
  return [counts](const std::string& name) { return numbers(name, counts.at(name)); };
}

// A weight file in memory, to be changed and written; F32 unless said otherwise.
struct Tensors {
  struct Tensor {
    std::string dtype = "F32";
    ir::Shape shape;
  };
  std::map<std::string, Tensor> all;
  files::Metadata metadata;

  explicit Tensors(const models::ModelConfig& m, run::Naming naming = run::Naming::torchvision) {
    for (const models::Param& p : models::parameters(m)) {
      if (naming != run::Naming::hf) {
        all[naming == run::Naming::timm ? models::timm_name(m.family, p.name) : p.name] = {
            "F32", p.torch_shape};
        continue;
      }
      const std::vector<std::string> names = models::hf_names(m.family, p.name);
      ir::Shape shape = p.torch_shape;
      shape[0] /= static_cast<std::int64_t>(names.size());
      for (const std::string& name : names) all[name] = {"F32", shape};
    }
  }
  void rename(const std::string& from, const std::string& to) {
    all[to] = all.at(from);
    all.erase(from);
  }

  std::shared_ptr<const files::Safetensors> write(const std::filesystem::path& path) const {
    std::vector<std::vector<std::byte>> bytes;
    std::vector<files::NamedTensor> named;
    for (const auto& [name, tensor] : all) {
      bytes.emplace_back(files::dtype_size(tensor.dtype) *
                         static_cast<std::size_t>(ir::elements(tensor.shape)));
      named.push_back({name, tensor.dtype, tensor.shape, bytes.back()});
    }
    files::write_safetensors(path, named, metadata);
    return std::make_shared<files::Safetensors>(path);
  }
};

}  // namespace tessera::test
