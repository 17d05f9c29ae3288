// eval and predict: weights that name their model, and data or images, on one rank or on the ranks
// of a layout. Convention: what can be wrong without the other ranks is found before they are
// started; the first rank prints.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
#include "base/say.h"
#include "checkpoint/weights_open.h"
#include "comm/heartbeat.h"
#include "compile/pipeline.h"
#include "compile/stages.h"
#include "config/reader.h"
#include "data/arrays/npy.h"
#include "data/decode.h"
#include "input/augment.h"
#include "input/dataset.h"
#include "input/eval_data.h"
#include "ranks/launch.h"
#include "ranks/ranks.h"
#include "report/console.h"
#include "report/document.h"
#include "session/room.h"
#include "train/score.h"
#include "verbs/found.h"
#include "verbs/verbs.h"

namespace tessera::run {
namespace {

using nlohmann::ordered_json;

// The error that is raised instead of numbers that mean nothing: which parameter is to blame, where
// one is.
Error unsound(const Found& found, const std::string& what) {
  const std::string where = found.weights.from.string();
  for (const models::Param& p : models::parameters(found.weights.model)) {
    const std::vector<double> values = found.weights.source(p);
    if (const auto bad =
            std::count_if(values.begin(), values.end(), [](double v) { return !std::isfinite(v); });
        bad > 0)
      return {
          ErrorKind::nonfinite,
          fmt::format("{}: {} of the {} elements of {} are NaN or infinite", what, bad,
                      values.size(), p.name),
          where,
          "the weights are damaged or their training diverged: use others, or an older checkpoint"};
  }
  return {ErrorKind::nonfinite, what + ", though every weight is", where,
          "they overflow on the way: try --dtype f64"};
}

void print_score(const Score& s, const std::vector<std::string>& names,
                 const EvalOptions& options) {
  if (options.json) {
    ordered_json classes = ordered_json::array();
    for (std::size_t i = 0; i < names.size(); ++i)
      classes.push_back(
          {{"class", names[i]}, {"images", s.class_count[i]}, {"correct", s.class_correct[i]}});
    ordered_json document = {{"weights", options.weights},
                             {"data", options.data},
                             {"images", s.images},
                             {"loss", s.loss},
                             {"top1", s.top1},
                             {"top5", s.top5},
                             {"seconds", s.seconds},
                             {"classes", classes}};
    if (s.top1_tta >= 0) document["top1_tta"] = s.top1_tta;
    report::print_document(document);
    return;
  }
  say(stdout, "images {}   loss {:.4f}   top1 {:.2f}%   top5 {:.2f}%   ({:.1f} s)\n",
      report::with_commas(s.images), s.loss, s.top1 * 100, s.top5 * 100, s.seconds);
  if (s.top1_tta >= 0)
    say(stdout, "with test-time augmentation (flip)   top1 {:.2f}%\n", s.top1_tta * 100);
  say(stdout, "{:24} {:>8} {:>8}\n", "class", "images", "top1");
  for (std::size_t i = 0; i < names.size(); ++i)
    say(stdout, "{:24} {:>8} {:>7.1f}%\n", names[i], s.class_count[i],
        s.class_count[i] ? 100.0 * static_cast<double>(s.class_correct[i]) /
                               static_cast<double>(s.class_count[i])
                         : 0.0);
}

// Six significant digits are more than a probability has.
double rounded(double p) { return std::stod(fmt::format("{:.6g}", p)); }

// The likeliest classes of one image.
ordered_json top_of(const std::vector<double>& p, const std::vector<std::string>& classes,
                    std::int64_t most) {
  std::vector<std::size_t> order(p.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return p[a] > p[b]; });
  order.resize(std::min<std::size_t>(order.size(), static_cast<std::size_t>(most)));
  ordered_json top = ordered_json::array();
  for (const std::size_t c : order)
    top.push_back({{"class", c}, {"label", classes[c]}, {"probability", rounded(p[c])}});
  return top;
}

// "disc.png   disc 81.2%   ring 9.3%"
std::string line_for_people(const std::string& path, std::size_t width, const ordered_json& top) {
  std::string line = fmt::format("{:{}}", printable(path), width);
  for (const ordered_json& row : top)
    line += fmt::format("   {} {:.1f}%", printable(row["label"].get<std::string>()),
                        row["probability"].get<double>() * 100);
  return line;
}

bool is_array(const std::string& path) { return path.ends_with(".npy"); }

// The images of a batch that this rank reads, each at its place among all. One that cannot be read
// leaves a black image and is remembered.
struct Pictures {
  std::vector<std::uint8_t> pixels;
  std::vector<float> numbers;  // instead, of arrays
  std::size_t bad_at = 0;      // no further one was read
  std::optional<Error> bad;
};
Pictures read_pictures(std::span<const std::string> paths, const Session& session,
                       const data::Transform& transform) {
  const models::ModelConfig& m = session.config().model;
  const auto size = static_cast<std::size_t>(m.image_h * m.image_w * m.channels);
  const auto wants = session.own_samples_of(Goal::predict);
  const bool arrays = is_array(paths[0]);
  Pictures out{.pixels = std::vector<std::uint8_t>(arrays ? 0 : paths.size() * size),
               .numbers = std::vector<float>(arrays ? paths.size() * size : 0),
               .bad_at = paths.size(),
               .bad = {}};
  data::Image image;
  for (std::size_t i = 0; i < paths.size() && !out.bad; ++i) {
    if (wants && !wants(static_cast<std::int64_t>(i), static_cast<std::int64_t>(paths.size())))
      continue;
    try {
      if (arrays) {
        data::decode_npy(paths[i], static_cast<int>(m.channels), image);
        transform.apply(image, {}, std::span(out.numbers).subspan(i * size, size));
      } else {
        data::decode_image(paths[i], transform.wants_of({}), image);
        transform.pixels(image, {}, std::span(out.pixels).subspan(i * size, size));
      }
    } catch (const Error& error) {
      out.bad_at = i;
      out.bad = error;
    }
  }
  return out;
}

int evaluate_on(const Found& found, const EvalOptions& options, const Ranks& ranks) {
  const std::unique_ptr<Session> session = load_found(found, ranks, options.batch);
  std::unique_ptr<data::Dataset> dataset;
  ranks.together([&] {
    comm::Heartbeat::doing("opening the data");
    std::unique_ptr<data::Dataset> opened = open_data(found.config, data::Split::test);
    if (const std::string note = links_note(*opened); ranks.first() && !note.empty())
      report::say_note(note);
    dataset = labelled_by(found.weights.classes, std::move(opened), options.data);
  });
  const std::int64_t batch = std::min(options.batch, dataset->size());
  std::vector<PlanKey> plans = {{Goal::evaluate, batch}};
  if (const std::int64_t last = batch > 0 ? dataset->size() % batch : 0; last > 0)
    plans.push_back({Goal::evaluate, last});
  reserve(*session, plans, ranks);
  comm::Heartbeat::doing("evaluating");
  report::Console console;
  const Score s =
      score(*session, found.config, *dataset, options.batch,
            static_cast<int>(found.config.data.workers), ranks.first() ? &console : nullptr);
  console.finish();
  ranks.together([&] {
    if (!s.finite) throw unsound(found, "the loss or a prediction is not finite");
  });
  if (ranks.first()) print_score(s, dataset->class_names(), options);
  return 0;
}

// The error of a picture, with what is wrong with those after it: whoever mends one mends all.
Error with_others(Error error, std::span<const std::string> paths, std::int64_t channels) {
  constexpr int most_told = 20;
  int told = 0;
  data::Image image;
  for (const std::string& path : paths) {
    try {
      if (is_array(path))
        data::decode_npy(path, static_cast<int>(channels), image);
      else
        (void)data::decode_image(path);
    } catch (const Error& other) {
      if (++told <= most_told) error.and_also(other.where + ": " + other.message);
    }
  }
  if (told > most_told) error.and_also(fmt::format("and {} more", told - most_told));
  return error;
}

int predict_on(const Found& found, const PredictOptions& options, const Ranks& ranks) {
  const std::int64_t most =
      options.batch > 0 ? options.batch : std::max<std::int64_t>(8, found.config.parallel.dp);
  const auto batch = static_cast<std::size_t>(most);
  const std::unique_ptr<Session> session = load_found(found, ranks, most);
  const data::Transform transform = eval_transform(found.config);
  std::size_t width = 0;
  for (const std::string& path : options.images) width = std::max(width, printable(path).size());
  const auto classes = static_cast<std::size_t>(found.config.model.classes);
  ordered_json all = ordered_json::array();
  for (std::size_t first = 0; first < options.images.size(); first += batch) {
    const auto paths =
        std::span(options.images).subspan(first, std::min(batch, options.images.size() - first));
    comm::Heartbeat::doing("predicting");
    const Pictures mine = read_pictures(paths, *session, transform);
    // Those before the first that cannot be read have their lines before the error has its own.
    const auto good =
        paths.size() -
        static_cast<std::size_t>(ranks.most(static_cast<double>(paths.size() - mine.bad_at)));
    const std::vector<double> logits =
        good == 0
            ? std::vector<double>{}
            : session->predict(mine.pixels.empty() ? Images(mine.numbers) : Images(mine.pixels),
                               static_cast<std::int64_t>(paths.size()));
    std::size_t sound = 0;
    while (sound < good && std::all_of(&logits[sound * classes], &logits[sound * classes] + classes,
                                       [](double v) { return std::isfinite(v); }))
      ++sound;
    for (std::size_t i = 0; i < sound && ranks.first(); ++i) {
      const double* row = &logits[i * classes];
      ordered_json line = {
          {"file", paths[i]},
          {"top", top_of(softmax({row, row + classes}), found.weights.classes, options.top)}};
      if (options.logits) line["logits"] = std::vector<double>(row, row + classes);
      if (options.json)
        all.push_back(line);
      else if (options.table)
        say(stdout, "{}\n", line_for_people(paths[i], width, line["top"]));
      else
        say_json(stdout, line.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
    }
    ranks.together([&] {
      if (sound < good)
        throw unsound(found, "the prediction for " + paths[sound] + " is not finite");
      if (mine.bad && mine.bad_at == good)
        throw with_others(*mine.bad, std::span(options.images).subspan(first + mine.bad_at + 1),
                          found.config.model.channels);
    });
  }
  if (options.json && ranks.first()) report::print_document(all);
  return 0;
}

}  // namespace

int evaluate(const EvalOptions& options, char** argv) {
  WeightsOptions keys = options;  // with the flags of this verb alone
  const auto flag = [&](const char* name, const char* key, const std::string& value) {
    keys.overrides.push_back(
        {.key = key, .value = value, .origin = fmt::format("{} {}", name, value), .is_flag = true});
  };
  if (options.seed) flag("--seed", "run.seed", std::to_string(*options.seed));
  if (options.test_size > 0)
    flag("--test-size", "data.test_size", std::to_string(options.test_size));
  if (options.val_fraction >= 0)
    flag("--val-fraction", "data.val_fraction", fmt::format("{}", options.val_fraction));
  if (!options.tta.empty()) flag("--tta", "data.tta", options.tta);
  Found found = find_weights(keys);
  const config::Config& config = found.config;
  use_data(found, options.data, options.weights);
  check_schedule(config);
  return on_ranks(config, argv,
                  [&](comm::Comm* world) { return evaluate_on(found, options, Ranks(world)); });
}

int predict(const PredictOptions& options, char** argv) {
  const Found found = find_weights(options);
  const models::ModelConfig& m = found.config.model;
  const auto arrays = std::count_if(options.images.begin(), options.images.end(), is_array);
  if (arrays > 0 && arrays < static_cast<std::ptrdiff_t>(options.images.size()))
    throw Error(ErrorKind::usage, "some of the images are .npy arrays and some are pictures",
                "IMAGE", "give each kind a command of its own");
  if (m.channels > 4 && arrays == 0)
    throw Error(ErrorKind::usage,
                fmt::format("the model takes {} channels; a PNG or JPEG has at most 4", m.channels),
                options.weights, "give .npy arrays of so many channels");
  check_schedule(found.config);
  return on_ranks(found.config, argv,
                  [&](comm::Comm* world) { return predict_on(found, options, Ranks(world)); });
}

}  // namespace tessera::run
