// predictions.json of a run folder: how the test images of each class were taken at the end of a
// run, and some of them with their pictures. Written by the run, read by its page
// (record/read_predictions.h). Convention: a picture is a PNG file in base64; names and numbers are
// those of the data set.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tessera::report {

struct SamplePrediction {
  std::string name;  // of the file, or "sample 12"
  std::int64_t label = 0, said = 0;
  double probability = 0;  // of what was said
  std::string png;         // base64
};

struct Predictions {
  std::vector<std::string> classes;
  std::vector<std::int64_t> images, correct;  // by the true class
  std::vector<std::int64_t> confusion;  // [true][said]; empty where there are too many classes
  std::vector<SamplePrediction> samples;
};

inline constexpr std::size_t kMostConfusionClasses = 100, kMostSamples = 64;

nlohmann::ordered_json to_json(const Predictions& predictions);
// An 8-bit picture [height][width][channels] as a PNG, made smaller by whole factors until no side
// exceeds `most`. One channel is grey; of others the first three are red, green and blue.
std::string small_png(const std::uint8_t* pixels, int height, int width, int channels, int most);

}  // namespace tessera::report
