#include "files/foreign_weights.h"

#include <string>
#include <string_view>

#include "base/check.h"
#include "base/printable.h"

namespace tessera::files {
namespace {

// A state dict alone, or below the keys that training scripts put it under. `weights_only` keeps
// the pickle from running code. Copies: safetensors refuses tensors that share memory.
constexpr std::string_view convert_torch =
    "import sys, torch; from safetensors.torch import save_file; d = torch.load(sys.argv[1], "
    "map_location='cpu', weights_only=True); d = d.get('state_dict', d.get('model', d)); "
    "save_file({k: v.detach().clone().contiguous() for k, v in d.items() if torch.is_tensor(v)}, "
    "sys.argv[2])";

}  // namespace

void refuse_foreign(const std::filesystem::path& path, std::span<const std::byte> front) {
  const std::string_view bytes(reinterpret_cast<const char*>(front.data()), front.size());
  if (bytes.size() > 8 && bytes[8] == '{') return;  // where every safetensors header begins
  const auto refuse = [&](const std::string& what, const std::string& cure) {
    throw Error(ErrorKind::weights, "this is " + what + ", not a safetensors file", path.string(),
                cure);
  };
  const std::string convert =
      "convert it once: python3 -c \"" + std::string(convert_torch) + "\" " +
      shell_word(path.string()) + " " +
      shell_word(std::filesystem::path(path).replace_extension(".safetensors").string()) +
      " (pip install torch safetensors)";
  const std::string ending = path.extension().string();
  // "PK" begins any zip archive, which both PyTorch and NumPy's .npz are.
  if (bytes.starts_with("PK\x03\x04") && ending == ".npz")
    refuse("a NumPy archive (.npz)", "save its arrays with safetensors.numpy.save_file");
  if (bytes.starts_with("PK\x03\x04"))
    refuse("a zip archive, as torch.save writes it (.pth, .pt, .bin)", convert);
  if (bytes.starts_with("\x80\x02") || bytes.starts_with("\x80\x03") ||
      bytes.starts_with("\x80\x04"))
    refuse("a Python pickle, as torch.save wrote it before PyTorch 1.6", convert);
  if (bytes.starts_with("\x93NUMPY"))
    refuse("a NumPy array (.npy)", "save its arrays with safetensors.numpy.save_file");
  if (bytes.starts_with("\x89HDF\r\n"))
    refuse("an HDF5 file, as Keras writes it (.h5)",
           "load it in its framework and save its arrays with safetensors");
  if (bytes.starts_with("GGUF"))
    refuse("a GGUF file", "take the safetensors file that it was made from");
  if (ending == ".onnx") refuse("an ONNX file", "take the weights that it was exported from");
}

}  // namespace tessera::files
