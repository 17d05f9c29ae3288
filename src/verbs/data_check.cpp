// data verify and data stats: every image of a source is read once, at full size, by all threads.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/say.h"
#include "base/threads.h"
#include "data/folder.h"
#include "input/dataset.h"
#include "report/console.h"
#include "report/document.h"
#include "verbs/verbs.h"

namespace tessera::run {
namespace {

using nlohmann::ordered_json;
constexpr std::int64_t piece = 64;  // samples per task

struct Extent {
  int least = 1 << 30, most = 0;
  void take(int low, int high) {
    least = std::min(least, low);
    most = std::max(most, high);
  }
  ordered_json json() const { return {{"min", most ? least : 0}, {"max", most}}; }
};

// The findings in one split, or of a piece of it. Sums are whole numbers, so the order of adding
// does not matter.
struct SplitSeen {
  std::int64_t images = 0;
  std::vector<std::int64_t> per_class;
  std::vector<std::pair<std::int64_t, std::string>> bad;
  Extent height, width;
  std::vector<std::uint64_t> sum, squares;      // of bytes, per channel: room for 2^48 pixels
  std::vector<double> numbers, number_squares;  // the same of arrays, times 255 like bytes
  std::uint64_t pixels = 0;

  SplitSeen(int classes, int channels) : per_class(static_cast<std::size_t>(classes)) {
    sum.resize(static_cast<std::size_t>(channels));
    squares.resize(static_cast<std::size_t>(channels));
    numbers.resize(sum.size());
    number_squares.resize(sum.size());
  }
  void add(const data::Image& image, std::int32_t label) {
    ++images;
    ++per_class[static_cast<std::size_t>(label)];
    height.take(image.h, image.h);
    width.take(image.w, image.w);
    pixels += static_cast<std::uint64_t>(image.h) * image.w;
    for (std::size_t k = 0; k < sum.size(); ++k) {
      std::uint64_t s = 0, q = 0;  // at most 2^26 pixels of 2^16 each
      for (std::size_t i = k; i < image.pixels.size(); i += sum.size()) {
        s += image.pixels[i];
        q += image.pixels[i] * image.pixels[i];
      }
      sum[k] += s;
      squares[k] += q;
      for (std::size_t i = k; i < image.numbers.size(); i += sum.size()) {
        const double value = static_cast<double>(image.numbers[i]) * 255;
        numbers[k] += value;
        number_squares[k] += value * value;
      }
    }
  }
  void add(const SplitSeen& other) {
    images += other.images;
    pixels += other.pixels;
    for (std::size_t i = 0; i < per_class.size(); ++i) per_class[i] += other.per_class[i];
    bad.insert(bad.end(), other.bad.begin(), other.bad.end());
    height.take(other.height.least, other.height.most);
    width.take(other.width.least, other.width.most);
    for (std::size_t k = 0; k < sum.size(); ++k) {
      sum[k] += other.sum[k];
      squares[k] += other.squares[k];
      numbers[k] += other.numbers[k];
      number_squares[k] += other.number_squares[k];
    }
  }
  double total(std::size_t k) const { return static_cast<double>(sum[k]) + numbers[k]; }
  double total_squares(std::size_t k) const {
    return static_cast<double>(squares[k]) + number_squares[k];
  }
  std::vector<double> mean() const {
    std::vector<double> out;
    for (std::size_t k = 0; k < sum.size(); ++k)
      out.push_back(pixels ? total(k) / static_cast<double>(pixels) / 255 : 0);
    return out;
  }
  std::vector<double> deviation() const {
    std::vector<double> out;
    for (std::size_t k = 0; k < sum.size(); ++k) {
      const double n = static_cast<double>(std::max<std::uint64_t>(1, pixels)), m = total(k) / n;
      out.push_back(std::sqrt(std::max(0.0, total_squares(k) / n - m * m)) / 255);
    }
    return out;
  }
};

struct Part {
  const char* name;
  std::unique_ptr<data::Dataset> dataset;
  SplitSeen seen;
  std::int64_t ignored = 0;
  std::string links = {};  // out of the folder: a sentence
};

Part read_all(const config::Config& config, data::Split split, report::Console& console) {
  Part part{split == data::Split::train ? "train" : "test", open_data(config, split),
            SplitSeen(0, 0)};
  const data::Dataset& set = *part.dataset;
  part.seen = SplitSeen(set.classes(), set.channels());
  if (const auto* folder = dynamic_cast<const data::ImageFolder*>(&set))
    part.ignored = folder->ignored();
  part.links = links_note(set);
  ThreadPool pool(static_cast<int>(config.run.threads));
  std::mutex mutex;
  const auto start = std::chrono::steady_clock::now();
  std::int64_t done = 0;
  pool.parallel_for((set.size() + piece - 1) / piece, [&](std::int64_t task, int) {
    SplitSeen mine(set.classes(), set.channels());
    data::Image image;
    const std::int64_t end = std::min(set.size(), (task + 1) * piece);
    for (std::int64_t i = task * piece; i < end; ++i) {
      try {
        set.get(i, {}, image);
        mine.add(image, set.label(i));
      } catch (const Error& error) {
        if (error.kind != ErrorKind::data) throw;
        mine.bad.emplace_back(
            i, error.where.empty() ? error.message : error.where + ": " + error.message);
      }
    }
    std::lock_guard lock(mutex);
    part.seen.add(mine);
    done += end - task * piece;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    console.bar(static_cast<double>(done) / static_cast<double>(set.size()), elapsed.count());
  });
  std::sort(part.seen.bad.begin(), part.seen.bad.end());
  console.finish();
  return part;
}

std::vector<Part> read_both(const config::Config& config) {
  report::Console console;
  std::vector<Part> parts;
  for (const data::Split split : {data::Split::train, data::Split::test})
    parts.push_back(read_all(config, split, console));
  return parts;
}

std::vector<std::string> problems(const std::vector<Part>& parts) {
  std::vector<std::string> out;
  for (const Part& part : parts)
    for (const auto& [_, what] : part.seen.bad) out.push_back(what);
  return out;
}

void print_links(const std::vector<Part>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (!parts[i].links.empty() && (i == 0 || parts[i].links != parts[0].links))
      say(stdout, "note   {}\n", parts[i].links);
}

void print(const ordered_json& document) { report::print_document(document); }

}  // namespace

int data_verify(const config::Config& config, bool json) {
  const std::vector<Part> parts = read_both(config);
  const std::vector<std::string> bad = problems(parts);
  if (json) {
    ordered_json document = {{"data", config.data.source}, {"ok", bad.empty()}};
    for (const Part& part : parts)
      document[part.name] = {{"images", part.dataset->size()},
                             {"bad", part.seen.bad.size()},
                             {"ignored", part.ignored},
                             {"links", part.links}};
    document["bad"] = bad;
    print(document);
  } else {
    for (const Part& part : parts)
      say(stdout, "{:6} {} images, {} bad{}\n", part.name,
          report::with_commas(part.dataset->size()), part.seen.bad.size(),
          part.ignored
              ? fmt::format(", {} other files passed over", report::with_commas(part.ignored))
              : "");
    for (const std::string& what : bad) say(stdout, "bad    {}\n", what);
    print_links(parts);
  }
  return bad.empty() ? 0 : static_cast<int>(ErrorKind::data);
}

int data_stats(const config::Config& config, bool json) {
  const std::vector<Part> parts = read_both(config);
  const std::vector<std::string>& names = parts[0].dataset->class_names();
  if (json) {
    ordered_json document = {{"data", config.data.source}};
    for (const Part& part : parts) {
      ordered_json classes = ordered_json::array();
      for (std::size_t i = 0; i < names.size(); ++i)
        classes.push_back({{"class", names[i]}, {"images", part.seen.per_class[i]}});
      document[part.name] = {{"images", part.seen.images},
                             {"bad", part.seen.bad.size()},
                             {"ignored", part.ignored},
                             {"links", part.links},
                             {"height", part.seen.height.json()},
                             {"width", part.seen.width.json()},
                             {"mean", part.seen.mean()},
                             {"deviation", part.seen.deviation()},
                             {"classes", classes}};
    }
    print(document);
    return 0;
  }
  for (const Part& part : parts) {
    const SplitSeen& s = part.seen;
    say(stdout, "{:6} {} images of {}{} x {}{} pixels, {} bad{}\n", part.name,
        report::with_commas(s.images), s.height.least,
        s.height.least == s.height.most ? "" : fmt::format("..{}", s.height.most), s.width.least,
        s.width.least == s.width.most ? "" : fmt::format("..{}", s.width.most), s.bad.size(),
        part.ignored
            ? fmt::format(", {} other files passed over", report::with_commas(part.ignored))
            : "");
    const auto numbers = [](const std::vector<double>& values) {
      return fmt::format("{:.4f}", fmt::join(values, " "));
    };
    say(stdout, "       mean {}   deviation {}   of all pixels in [0, 1], per channel\n",
        numbers(s.mean()), numbers(s.deviation()));
  }
  print_links(parts);
  say(stdout, "{:24} {:>9} {:>9}\n", "class", "train", "test");
  for (std::size_t i = 0; i < names.size(); ++i)
    say(stdout, "{:24} {:>9} {:>9}\n", names[i], report::with_commas(parts[0].seen.per_class[i]),
        report::with_commas(parts[1].seen.per_class[i]));
  return 0;
}

}  // namespace tessera::run
