// eval and predict: a weight file that names its model, and data or images.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/threads.h"
#include "config/reader.h"
#include "data/decode.h"
#include "report/console.h"
#include "run/augment.h"
#include "run/dataset.h"
#include "run/run.h"
#include "run/score.h"
#include "run/weights_open.h"

namespace tessera::run {
namespace {

using nlohmann::ordered_json;

struct Loaded {
  config::Config config;
  std::vector<std::string> classes;
  std::unique_ptr<Session> session;
};

Loaded load(const std::string& weights, const std::optional<models::ModelConfig>& model, const std::string& dtype, std::int64_t threads) {
  const OpenedWeights opened = open_weights(weights, model);
  for (const std::string& note : opened.notes) fmt::print(stderr, "note: {}\n", note);
  Loaded out;
  out.config = photographs_for(opened.model);
  follow_preprocess(opened.preprocess, opened.from.string(), out.config);
  out.classes = opened.classes;
  out.config.precision.dtype = dtype;
  out.config.run.threads = threads > 0 ? threads : available_cores();
  out.session = std::make_unique<Session>(out.config);
  out.session->load(opened.source);
  return out;
}

// Six significant digits are more than a probability has.
double rounded(double p) { return std::stod(fmt::format("{:.6g}", p)); }

// "disc.png   disc 81.2%   ring 9.3%"
std::string line_for_people(const std::string& path, std::size_t width, const ordered_json& top) {
  std::string line = fmt::format("{:{}}", path, width);
  for (const ordered_json& row : top)
    line += fmt::format("   {} {:.1f}%", row["label"].get<std::string>(), row["probability"].get<double>() * 100);
  return line;
}

}  // namespace

int evaluate(const EvalOptions& options) {
  Loaded model = load(options.weights, options.model, options.dtype, options.threads);
  config::Config& config = model.config;
  config.data.source = options.data;
  config.run.seed = options.seed;
  config.data.tta = options.tta;
  if (options.test_size > 0) config.data.test_size = options.test_size;
  if (options.val_fraction >= 0) config.data.val_fraction = options.val_fraction;
  const config::Source source = config::parse_source(options.data);
  auto agree = [&](const char* what, std::int64_t data, std::int64_t mine) {
    if (data != 0 && data != mine)
      throw Error(ErrorKind::usage, fmt::format("the data has {} {}, the model in {} takes {}", what, data, options.weights, mine),
                  "--data", "give data of the model's size");
  };
  agree("height", source.h, config.model.image_h);
  agree("width", source.w, config.model.image_w);
  agree("channels", source.channels, config.model.channels);
  agree("classes", source.classes, config.model.classes);
  const auto dataset = open_data(config, data::Split::test);
  report::Console console;
  const Score s = score(*model.session, config, *dataset, options.batch, 1, &console);
  console.finish();
  const std::vector<std::string>& names = dataset->class_names();
  if (options.json) {
    ordered_json classes = ordered_json::array();
    for (std::size_t i = 0; i < names.size(); ++i)
      classes.push_back({{"class", names[i]}, {"images", s.class_count[i]}, {"correct", s.class_correct[i]}});
    ordered_json document = {
        {"weights", options.weights}, {"data", options.data}, {"images", s.images}, {"loss", s.loss}, {"top1", s.top1}, {"top5", s.top5},
        {"seconds", s.seconds},       {"classes", classes}};
    if (s.top1_tta >= 0) document["top1_tta"] = s.top1_tta;
    fmt::print("{}\n", document.dump(2));
    return 0;
  }
  fmt::print("images {}   loss {:.4f}   top1 {:.2f}%   top5 {:.2f}%   ({:.1f} s)\n", report::with_commas(s.images), s.loss, s.top1 * 100,
             s.top5 * 100, s.seconds);
  if (s.top1_tta >= 0) fmt::print("with test-time augmentation ({})   top1 {:.2f}%\n", options.tta, s.top1_tta * 100);
  fmt::print("{:24} {:>8} {:>8}\n", "class", "images", "top1");
  for (std::size_t i = 0; i < names.size(); ++i)
    fmt::print("{:24} {:>8} {:>7.1f}%\n", names[i], s.class_count[i],
               s.class_count[i] ? 100.0 * static_cast<double>(s.class_correct[i]) / static_cast<double>(s.class_count[i]) : 0.0);
  return 0;
}

int predict(const PredictOptions& options) {
  Loaded model = load(options.weights, options.model, options.dtype, options.threads);
  const models::ModelConfig& m = model.config.model;
  if (m.channels > 4)
    throw Error(ErrorKind::usage, fmt::format("the model takes {} channels; a PNG or JPEG has at most 4", m.channels), options.weights,
                "use `tessera eval` with data of that kind");
  const data::Transform transform = eval_transform(model.config);
  std::size_t width = 0;
  for (const std::string& path : options.images) width = std::max(width, path.size());
  data::Image image;
  ordered_json all = ordered_json::array();
  for (const std::string& path : options.images) {
    data::decode_image(path, transform.wants_of({}), image);
    std::vector<float> pixels(static_cast<std::size_t>(m.image_h * m.image_w * m.channels));
    transform.apply(image, {}, pixels);
    const std::vector<double> p = softmax(model.session->predict(pixels, 1));
    std::vector<std::size_t> order(p.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return p[a] > p[b]; });
    ordered_json top = ordered_json::array();
    for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), static_cast<std::size_t>(options.top)); ++i)
      top.push_back({{"class", order[i]}, {"label", model.classes[order[i]]}, {"probability", rounded(p[order[i]])}});
    const ordered_json line = {{"file", path}, {"top", top}};
    if (options.json)
      all.push_back(line);
    else if (options.table)
      fmt::print("{}\n", line_for_people(path, width, top));
    else
      fmt::print("{}\n", line.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  }
  if (options.json) fmt::print("{}\n", all.dump(2, ' ', false, ordered_json::error_handler_t::replace));
  return 0;
}

}  // namespace tessera::run
