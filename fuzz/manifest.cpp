// manifest.json of a checkpoint, as it comes and, because its hash stops nearly every mutant, also
// as a careful forger would seal it; then the progress of the run in it.
#include "files/manifest.h"

#include "checkpoint/progress.h"
#include "files/hash.h"
#include "fuzz.h"

using namespace tessera;
using nlohmann::json;

namespace {

void read(std::string_view text) {
  fuzz::accepts(ErrorKind::weights, "step-7/manifest.json", [&] {
    const files::Manifest manifest = files::parse_manifest(text, "step-7/manifest.json");
    if (files::print(files::parse_manifest(files::print(manifest), "again")) !=
        files::print(manifest))
      fuzz::finding("an accepted manifest does not survive printing");
    run::to_json(
        run::progress_from(manifest.state.value("progress", json()), "step-7/manifest.json"));
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  const std::string_view text = fuzz::as_text(input, size);
  read(text);
  json document = json::parse(text, nullptr, false);
  if (!document.is_object()) return 0;
  document.erase("hash");
  document["hash"] = files::hash_text(
      files::xxh3(std::string_view(document.dump(-1, ' ', false, json::error_handler_t::replace))));
  read(document.dump(-1, ' ', false, json::error_handler_t::replace));
  return 0;
}
