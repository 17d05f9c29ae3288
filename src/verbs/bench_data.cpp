// bench data: images per second through the loader with the configured transforms and, for image
// folders, beside the decoder alone on the same files, the same threads and in the same minute
// (they take turns, so that a busy machine slows both).
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/check.h"
#include "base/say.h"
#include "data/decode.h"
#include "data/folder.h"
#include "input/dataset.h"
#include "report/console.h"
#include "report/document.h"
#include "report/metrics.h"
#include "verbs/verbs.h"

namespace tessera::run {
namespace {

using nlohmann::ordered_json;
constexpr double turn_s = 0.5;
constexpr std::size_t most_held_bytes = std::size_t{1} << 30;

// Images per second, and per second that the process really had a core: what remains comparable
// where others use the machine.
struct Rate {
  double wall = 0, cpu = 0;
};
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Rate rate(std::int64_t images) const {
    return {static_cast<double>(images) / seconds(), static_cast<double>(images) * CLOCKS_PER_SEC /
                                                         static_cast<double>(std::clock() - cpu_)};
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::clock_t cpu_ = std::clock();  // of all threads
};

// One side of the comparison, turn by turn.
struct Turns {
  std::vector<double> wall, cpu;
  void add(const Rate& rate) {
    wall.push_back(rate.wall);
    cpu.push_back(rate.cpu);
  }
  report::Quantiles per_s() const { return report::quantiles(wall); }
  report::Quantiles per_cpu_s() const { return report::quantiles(cpu); }
};

// Images per second of the loader, which keeps its threads and memory between turns. All that can
// be prepared ahead is prepared before the clock starts and again before it stops, so that it
// counts exactly the images that were handed out.
Rate turn(data::Loader& loader, std::int64_t images, data::Batch& batch) {
  loader.settle();
  const Stopwatch watch;
  std::int64_t done = 0;
  while (done < images && loader.next(batch)) done += batch.count;
  loader.settle();
  return watch.rate(done);
}

// The same for the decoder alone, on files that already lie in memory.
Rate turn(const std::vector<std::vector<std::byte>>& files, const data::Wants& wants, int threads) {
  const Stopwatch watch;
  std::atomic<std::int64_t> next{0}, done{0};
  const auto work = [&] {
    data::Image image;
    while (watch.seconds() < turn_s) {
      data::decode_image(files[static_cast<std::size_t>(next++) % files.size()], "bench", wants,
                         image);
      ++done;
    }
  };
  std::vector<std::thread> others;
  std::exception_ptr none;  // no more threads, or no memory for them
  try {
    for (int i = 1; i < threads; ++i) others.emplace_back(work);
    work();
  } catch (const std::exception&) {
    none = std::current_exception();
  }
  for (std::thread& t : others) t.join();
  if (none) std::rethrow_exception(none);
  return watch.rate(done);
}

std::vector<std::vector<std::byte>> hold_files(const data::Dataset& dataset) {
  std::vector<std::vector<std::byte>> files;
  std::size_t bytes = 0;
  data::Image image;
  for (std::int64_t i = 0; i < dataset.size() && bytes < most_held_bytes && files.size() < 4096;
       ++i) {
    std::vector<std::byte> file;
    try {
      data::read_image_file(dataset.sample_name(i), file);
      data::decode_image(file, "", {}, image);  // bad ones are left out
    } catch (const Error&) {
      continue;
    }
    bytes += file.size();
    files.push_back(std::move(file));
  }
  return files;
}

ordered_json rates(const report::Quantiles& q) {
  return {{"median", q.median}, {"min", q.min}, {"max", q.max}};
}

}  // namespace

int bench_data(const config::Config& config, const BenchOptions& options) {
  const data::Split split = options.split == "test" ? data::Split::test : data::Split::train;
  const auto dataset = open_data(config, split);
  data::LoaderOptions loading = loader_options(config, *dataset, split);
  loading.epochs = -1;
  const int threads = std::max(1, loading.workers);
  loading.batch = std::min<std::int64_t>(options.batch, dataset->size());
  const bool folder = dynamic_cast<const data::ImageFolder*>(dataset.get()) != nullptr;
  const data::Wants shrunk = [&](int h, int w) {
    return data::Want{{0, 0, h, w}, loading.height, loading.width};
  };
  const auto files = folder ? hold_files(*dataset) : std::vector<std::vector<std::byte>>{};
  if (folder && files.empty())
    throw Error(ErrorKind::data, "no image can be read", config.data.source);

  Turns ours, scaled, full;
  data::Loader loader(*dataset, loading);
  data::Batch batch;
  const auto turns = options.repeats > 0 ? options.repeats : 7;
  std::int64_t images = 5 * loading.batch;
  for (std::int64_t i = -1; i < turns; ++i) {
    const Rate rate = turn(loader, images, batch);
    images = std::max(4 * loading.batch, static_cast<std::int64_t>(rate.wall * turn_s));
    if (i >= 0) ours.add(rate);  // the first one warms up
    if (!folder) continue;
    const Rate at_scale = turn(files, shrunk, threads), whole = turn(files, {}, threads);
    if (i >= 0) {
      scaled.add(at_scale);
      full.add(whole);
    }
  }
  const report::Quantiles q = ours.per_s(), c = ours.per_cpu_s();
  if (options.json) {
    ordered_json document = {{"data", config.data.source}, {"split", options.split},
                             {"batch", loading.batch},     {"workers", loading.workers},
                             {"height", loading.height},   {"width", loading.width},
                             {"images_per_s", rates(q)},   {"images_per_cpu_s", rates(c)}};
    if (folder) {
      document["decoder_images_per_s"] = rates(scaled.per_s());
      document["decoder_full_size_images_per_s"] = rates(full.per_s());
      document["of_decoder"] = q.median / scaled.per_s().median;
      document["decoder_images_per_cpu_s"] = rates(scaled.per_cpu_s());
      document["of_decoder_cpu"] = c.median / scaled.per_cpu_s().median;
    }
    report::print_document(document);
    return 0;
  }
  report::say_sentence(
      "{} ({}) to {} x {}, batch {}, {} worker{}: median {} img/s (min {}, max {}, {} "
      "turns)\n",
      config.data.source, options.split, loading.height, loading.width, loading.batch,
      loading.workers, loading.workers == 1 ? "" : "s", report::per_second(q.median),
      report::per_second(q.min), report::per_second(q.max), turns);
  if (folder) {
    const report::Quantiles s = scaled.per_s(), f = full.per_s();
    report::say_sentence(
        "the decoder alone on {} thread{}: {} img/s shrinking as the loader lets it, {} at "
        "full size; the loader reaches {:.0f}% "
        "and {:.0f}% ({:.0f}% and {:.0f}% by CPU time)\n",
        threads, threads == 1 ? "" : "s", report::per_second(s.median),
        report::per_second(f.median), q.median / s.median * 100, q.median / f.median * 100,
        c.median / scaled.per_cpu_s().median * 100, c.median / full.per_cpu_s().median * 100);
  }
  return 0;
}

}  // namespace tessera::run
