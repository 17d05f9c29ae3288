// DeepSpeed configurations: what is accepted prints as TOML that reads back as the same
// configuration on the same number of ranks. Input: one byte for the number of ranks (0: not
// known), then the file's text; what follows a zero byte is the TOML file beside it.
#include "config/print.h"
#include "config/reader.h"
#include "fuzz.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  if (size == 0) return 0;
  const int world = input[0] % 9;
  const std::string_view all = fuzz::as_text(input + 1, size - 1),
                         text = all.substr(0, all.find('\0'));
  const std::string_view toml = all.substr(std::min(all.size(), text.size() + 1));
  config::Inputs inputs{toml, toml.empty() ? "" : "ds.toml", text, "ds.json",
                        {},   config::Purpose::other,        world};
  fuzz::accepts(ErrorKind::usage, "ds.", [&] {
    const config::Loaded loaded = config::load_inputs(inputs);
    config::to_json(loaded);
    for (const config::Effective& row : loaded.deepspeed)
      if (row.source.empty()) fuzz::finding("a row of the table without a source");
    if (!(config::load_text(config::to_toml(loaded.config), "again.toml", {},
                            config::Purpose::other, world) == loaded.config))
      fuzz::finding("the configuration does not survive printing");
  });
  return 0;
}
