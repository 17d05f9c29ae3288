// Safetensors files: what is accepted has every tensor inside the file with the bytes that its
// shape and dtype need.
#include "files/safetensors.h"

#include "fuzz.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  const auto whole = fuzz::as_bytes(input, size);
  fuzz::accepts(ErrorKind::weights, "weights.safetensors", [&] {
    const files::SafetensorsContent content =
        files::parse_safetensors(whole, "weights.safetensors");
    for (const auto& [name, view] : content.tensors) {
      std::uint64_t bytes = files::dtype_size(view.dtype);
      for (const std::int64_t dim : view.shape) bytes *= static_cast<std::uint64_t>(dim);
      const bool inside = view.bytes.data() >= whole.data() &&
                          view.bytes.data() + view.bytes.size() <= whole.data() + whole.size();
      if (!inside || bytes != view.bytes.size())
        fuzz::finding("an unsound tensor was accepted: " + name);
      fuzz::accepts(ErrorKind::weights, "dtype", [&, &view = view, &name = name] {
        files::to_floats(view, name);
        files::to_doubles(view, name);
      });
    }
  });
  return 0;
}
