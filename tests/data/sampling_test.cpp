// The loader does this beyond plain batches: bad samples, balanced draws, weights, whole batches
// only, transforms, mixing, resizing.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <set>

#include "data/fixtures.h"
#include "data/folder.h"
#include "data/loader.h"
#include "data/order.h"
#include "files/scratch.h"

namespace tessera::data::sampling_test {
namespace {

using test::error_of;

// Sample i is a pixel of value i % 256; class 0 for the first `first`, then 1; some indices are
// bad.
class Uneven : public Dataset {
 public:
  Uneven(std::int64_t size, std::int64_t first, std::set<std::int64_t> bad = {})
      : size_(size), first_(first), bad_(std::move(bad)) {
    this->bad().say = [this](const std::string& line) { said.push_back(line); };
  }
  std::int64_t size() const override { return size_; }
  const std::vector<std::string>& class_names() const override { return names_; }
  int height() const override { return 1; }
  int width() const override { return 1; }
  int channels() const override { return 1; }
  std::int32_t label(std::int64_t index) const override { return index < first_ ? 0 : 1; }
  void get(std::int64_t index, const Wants&, Image& image) const override {
    if (bad_.contains(index))
      throw Error(ErrorKind::data, "torn", "picture " + std::to_string(index));
    image.reshape(1, 1, 1);
    image.pixels[0] = static_cast<std::uint8_t>(index);
  }
  std::vector<std::string> said;

 private:
  std::int64_t size_, first_;
  std::set<std::int64_t> bad_;
  std::vector<std::string> names_ = {"many", "few"};
};

// The transform that keeps the index readable: a value per sample.
LoaderOptions readable(std::int64_t batch, int workers) {
  LoaderOptions o;
  o.batch = batch;
  o.workers = workers;
  o.transform.apply = [](const Image&, const SampleKey& key, std::span<float> out) {
    out[0] = static_cast<float>(key.index);
  };
  return o;
}

std::vector<float> drawn(const Dataset& dataset, const LoaderOptions& options, int epochs = 1) {
  LoaderOptions o = options;
  o.epochs = epochs;
  Loader loader(dataset, o);
  std::vector<float> out;
  for (Batch batch; loader.next(batch);)
    out.insert(out.end(), batch.images.begin(), batch.images.end());
  return out;
}

TEST(BadSamples, AreReplacedByTheNextGoodOneNamedOnceAndCounted) {
  for (const int workers : {0, 1, 4}) {
    const Uneven dataset(5000, 2500, {7, 8, 4999});
    LoaderOptions options = readable(64, workers);
    options.shuffle = false;
    const std::vector<float> seen = drawn(dataset, options, 2);
    ASSERT_EQ(seen.size(), 10000u);
    for (const std::size_t epoch : {0u, 5000u}) {
      EXPECT_EQ(seen[epoch + 6], 6);
      EXPECT_EQ(seen[epoch + 7], 9);
      EXPECT_EQ(seen[epoch + 8], 9);
      EXPECT_EQ(seen[epoch + 4999], 0);
    }
    EXPECT_EQ(dataset.bad().count(), 3) << workers;
    ASSERT_EQ(dataset.said.size(), 3u) << workers;
    EXPECT_NE(dataset.said[0].find("picture 7: torn"), std::string::npos) << dataset.said[0];
    EXPECT_NE(dataset.said[2].find("picture 4999"), std::string::npos);
  }
}

TEST(BadSamples, MoreThanOneInAThousandEndTheRunAtTheSameBatchWhateverTheWorkers) {
  for (const int workers : {0, 1, 2, 7}) {
    const Uneven dataset(2000, 1000, {5, 900, 1500});
    LoaderOptions options = readable(10, workers);
    options.shuffle = false;
    options.prefetch = 8;
    Loader loader(dataset, options);
    Batch batch;
    int batches = 0;
    const Error error = error_of([&] {
      for (;; ++batches) loader.next(batch);
    });
    EXPECT_EQ(batches, 150) << workers;  // two are allowed; the third stands at 1500
    EXPECT_EQ(error.kind, ErrorKind::data);
    EXPECT_EQ(dataset.said.size(), 3u);
    for (const char* words :
         {"3 of 2000 images", "picture 5: torn", "picture 900", "picture 1500", "data verify"})
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
  std::set<std::int64_t> all;
  for (std::int64_t i = 0; i < 100; ++i) all.insert(i);
  const Uneven hopeless(100, 50, all);
  Batch batch;
  EXPECT_EQ(error_of([&] { Loader(hopeless, readable(10, 2)).next(batch); }).kind, ErrorKind::data);
}

TEST(BadSamples, ADamagedFileInAFolder) {
  const test::Scratch scratch;
  test::write_class(scratch / "a", 20);
  test::write_class(scratch / "b", 20);
  for (const char* name : {"a/2.jpg", "b/12.jpg", "b/8.jpg"})
    test::write_bytes(scratch / name, test::read_bytes(scratch / name).substr(0, 300));
  const auto set = image_folder(scratch.folder(), Split::train, {3, 0.0, 0});
  set->bad().say = [](const std::string&) {};
  LoaderOptions options;
  options.height = options.width = 8;
  const Error error = error_of([&] { drawn(*set, options); });
  // All of them, also those that no batch has met.
  for (const char* words : {"3 of 40 images", "a/2.jpg: damaged JPEG", "b/8.jpg: damaged JPEG",
                            "b/12.jpg: damaged JPEG"})
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
}

TEST(Balanced, EveryClassEquallyOftenAndNoneTwiceBeforeAllOnce) {
  std::vector<std::int32_t> labels(1000);
  for (std::size_t i = 0; i < labels.size(); ++i)
    labels[i] = i < 900 ? 0 : i < 995 ? 1 : 3;  // class 2 is empty
  const auto order = balanced_order(3, 0, labels, 4);
  ASSERT_EQ(order.size(), 1000u);
  EXPECT_EQ(order, balanced_order(3, 0, labels, 4));
  EXPECT_NE(order, balanced_order(3, 1, labels, 4));
  EXPECT_NE(order, balanced_order(4, 0, labels, 4));
  std::map<int, int> classes;
  std::map<std::int64_t, int> times;
  for (const std::int64_t i : order) {
    const int label = labels[static_cast<std::size_t>(i)];
    ++classes[label];
    ++times[i];
    const int passes = classes[label], size = label == 0 ? 900 : label == 1 ? 95 : 5;
    EXPECT_LE(times[i], (passes + size - 1) / size)
        << i;  // nobody is ahead of the pass that its class is in
  }
  for (const auto& [label, n] : classes) EXPECT_NEAR(n, 1000 / 3.0, 1) << label;
  EXPECT_EQ(classes.size(), 3u);

  const Uneven dataset(300, 290);
  LoaderOptions options = readable(32, 3);
  options.balanced = true;
  options.seed = 5;
  const auto seen = drawn(dataset, options);
  EXPECT_EQ(seen.size(), 300u);
  EXPECT_EQ(std::count_if(seen.begin(), seen.end(), [](float i) { return i >= 290; }), 150);
  options.workers = 0;
  EXPECT_EQ(drawn(dataset, options), seen);
}

TEST(ClassWeights, AreInverseToFrequencyWithMeanOne) {
  const std::vector<std::int32_t> labels = {0, 0, 0, 0, 0, 0, 1, 1, 3, 3};
  const std::vector<float> weights = class_weights(labels, 4);
  EXPECT_FLOAT_EQ(weights[1] / weights[0], 3);
  EXPECT_EQ(weights[2], 0);
  float sum = 0;
  for (const std::int32_t label : labels) sum += weights[static_cast<std::size_t>(label)];
  EXPECT_NEAR(sum, 10, 1e-5);
  const Uneven dataset(40, 30);
  LoaderOptions options = readable(16, 2);
  options.class_weights = {1, 5};
  options.epochs = 1;
  Loader loader(dataset, options);
  for (Batch batch; loader.next(batch);)
    for (std::size_t i = 0; i < batch.labels.size(); ++i)
      EXPECT_EQ(batch.weights[i], batch.labels[i] ? 5 : 1);
  // A rank that reads no images may be the one that weighs their losses.
  options.wants = [](std::int64_t, std::int64_t) { return false; };
  Loader blind(dataset, options);
  for (Batch batch; blind.next(batch);)
    for (std::size_t i = 0; i < batch.labels.size(); ++i)
      EXPECT_EQ(batch.weights[i], batch.labels[i] ? 5 : 1);
}

TEST(Loader, WholeBatchesOnly) {
  const Uneven dataset(103, 50);
  LoaderOptions options = readable(10, 2);
  options.drop_last = true;
  const auto seen = drawn(dataset, options, 3);
  ASSERT_EQ(seen.size(), 300u);
  for (int epoch = 0; epoch < 3; ++epoch) {
    const auto order = epoch_order(0, epoch, 103);
    EXPECT_TRUE(
        std::equal(seen.begin() + 100 * epoch, seen.begin() + 100 * (epoch + 1), order.begin()));
  }
  options.first_epoch = 1;
  options.first_position = 70;
  const auto rest = drawn(dataset, options, 2);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), seen.begin() + 170, seen.end()));
  EXPECT_EQ(Loader(dataset, options).epoch_samples(), 100);
  EXPECT_EQ(Loader(dataset, options).batches_per_epoch(), 10);
  options.batch = 104;
  EXPECT_EQ(error_of([&] { drawn(dataset, options); }).kind, ErrorKind::usage);
}

// A batch is mixed exactly once, after its last sample is there, and with it travels what the mix
// made.
TEST(Loader, MixingHappensOnceOnTheCompleteBatch) {
  const Uneven dataset(500, 250);
  for (const int workers : {0, 1, 5}) {
    std::atomic<int> mixed{0};
    LoaderOptions options = readable(64, workers);
    options.epochs = 2;
    options.shuffle = false;
    options.mix = [&](Batch& batch) {
      ++mixed;
      for (std::int64_t i = 0; i < batch.count; ++i) {
        EXPECT_EQ(batch.images[static_cast<std::size_t>(i)],
                  static_cast<float>(batch.first_position + i));
        batch.images[static_cast<std::size_t>(i)] = -1;
        batch.targets.insert(batch.targets.end(), {0.25f, 0.75f});
      }
    };
    Loader loader(dataset, options);
    int batches = 0;
    for (Batch batch; loader.next(batch); ++batches) {
      EXPECT_EQ(batch.targets.size(), static_cast<std::size_t>(2 * batch.count));
      EXPECT_TRUE(
          std::all_of(batch.images.begin(), batch.images.end(), [](float v) { return v == -1; }));
    }
    EXPECT_EQ(batches, 16);
    EXPECT_EQ(mixed, 16);
  }
  LoaderOptions options = readable(64, 2);
  options.mix = [](Batch&) { throw Error(ErrorKind::internal, "mix"); };
  Batch batch;
  EXPECT_EQ(error_of([&] { Loader(dataset, options).next(batch); }).message, "mix");
}

TEST(Loader, AnySizeBecomesTheModels) {
  const test::Scratch scratch;
  test::write_class(scratch / "a", 10, 50, 31);
  test::write_class(scratch / "b", 10, 16, 90);
  const auto set = image_folder(scratch.folder(), Split::train, {3, 0.0, 0});
  LoaderOptions options;
  options.height = 24;
  options.width = 16;
  options.batch = 7;
  options.epochs = 1;
  options.workers = 3;
  Loader loader(*set, options);
  std::int64_t seen = 0;
  for (Batch batch; loader.next(batch); seen += batch.count) {
    ASSERT_EQ(batch.images.size(), static_cast<std::size_t>(batch.count * 24 * 16 * 3));
    EXPECT_EQ(std::tuple(batch.height, batch.width, batch.channels), std::tuple(24, 16, 3));
    for (std::size_t i = 0; i < static_cast<std::size_t>(batch.count); ++i)
      for (std::size_t k = 1; k < 24 * 16 * 3; ++k)
        ASSERT_NEAR(batch.images[i * 24 * 16 * 3 + k], batch.images[i * 24 * 16 * 3], 0.02);
  }
  EXPECT_EQ(seen, 20);
}

}  // namespace
}  // namespace tessera::data::sampling_test
