#include "record/read_predictions.h"

#include <algorithm>
#include <filesystem>

#include "record/record_files.h"

namespace tessera::report {
namespace {

using nlohmann::json;

constexpr std::size_t most_classes = 100'000, longest_png = 1u << 20;

std::vector<std::int64_t> counts_of(const Values& v, const char* key, std::size_t expected,
                                    const std::string& where) {
  std::vector<std::int64_t> out;
  for (const json& n : v.list(key)) {
    if (!n.is_number_integer() || n.get<std::int64_t>() < 0)
      damaged(where, std::string(key) + ": expected counts");
    out.push_back(n.get<std::int64_t>());
  }
  if (!out.empty() && out.size() != expected)
    damaged(where, std::string(key) + ": expected one for each class");
  return out;
}

bool is_base64(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/' || c == '=';
  });
}

}  // namespace

Predictions predictions_from_json(const json& object, const std::string& where) {
  const Values v(object, where);
  Predictions out;
  for (const json& name : v.list("classes")) {
    if (!name.is_string() || out.classes.size() == most_classes)
      damaged(where, "classes: expected names");
    out.classes.push_back(name.get<std::string>());
  }
  const std::size_t n = out.classes.size();
  out.images = counts_of(v, "images", n, where);
  out.correct = counts_of(v, "correct", n, where);
  if (n <= kMostConfusionClasses) out.confusion = counts_of(v, "confusion", n * n, where);
  for (const json& entry : v.list("samples")) {
    if (!entry.is_object() || out.samples.size() == kMostSamples)
      damaged(where, "samples: expected at most 64 objects");
    const Values s(entry, where + ", samples");
    SamplePrediction sample{.name = s.text("name"),
                            .label = s.whole("label", 0),
                            .said = s.whole("said", 0),
                            .probability = s.number("probability"),
                            .png = s.text("png")};
    const auto known = [&](std::int64_t c) { return c >= 0 && c < static_cast<std::int64_t>(n); };
    if (!known(sample.label) || !known(sample.said) || sample.png.size() > longest_png ||
        !is_base64(sample.png))
      damaged(where, "samples: a class that there is not, or a picture that is none");
    out.samples.push_back(std::move(sample));
  }
  return out;
}

Predictions read_predictions(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder) / "predictions.json";
  const json document = document_at(path);
  return document.empty() ? Predictions{} : predictions_from_json(document, path.string());
}

}  // namespace tessera::report
