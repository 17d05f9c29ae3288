// TOML configurations with values of `--set`: what is accepted prints as TOML that reads back as
// the same configuration. Input: the file's text; after a zero byte, one KEY=VALUE a line.
#include "config/print.h"
#include "config/reader.h"
#include "fuzz.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  const std::string_view all = fuzz::as_text(input, size), text = all.substr(0, all.find('\0'));
  std::string_view rest = all.substr(std::min(all.size(), text.size() + 1));
  std::vector<config::Override> overrides;
  while (!rest.empty() && overrides.size() < 8) {
    overrides.push_back(config::from_set(rest.substr(0, rest.find('\n'))));
    rest.remove_prefix(std::min(rest.find('\n'), rest.size() - 1) + 1);
  }
  for (const auto purpose : {config::Purpose::train, config::Purpose::other})
    fuzz::accepts(ErrorKind::usage, "run.toml", [&] {
      const config::Config config = config::load_text(text, "run.toml", overrides, purpose);
      config::to_json(config);
      if (!(config::load_text(config::to_toml(config), "again.toml", {}, purpose) == config))
        fuzz::finding("the configuration does not survive printing");
    });
  return 0;
}
