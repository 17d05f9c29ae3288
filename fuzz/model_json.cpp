// The model section that weight files carry as JSON (`tessera.model`): what is accepted prints and
// reads back as the same model.
#include "config/reader.h"
#include "fuzz.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  fuzz::accepts(ErrorKind::weights, "tessera.model", [&] {
    const models::ModelConfig model = config::model_from_json(fuzz::as_text(input, size));
    if (!(config::model_from_json(config::model_to_json(model)) == model))
      fuzz::finding("the model does not survive printing");
  });
  return 0;
}
