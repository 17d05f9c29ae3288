// The loader: every sample exactly once per epoch, results independent of the workers, resuming,
// flips, errors, shutdown.
#include "data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "data/augment.h"
#include "data/order.h"
#include "data/synthetic.h"
#include "files/scratch.h"

namespace tessera::data::loader_test {
namespace {

using test::error_of;

// Sample i is a 1 x 2 picture (i, 255 - i) with label i; one index can be made to fail.
class Numbered : public Dataset {
 public:
  explicit Numbered(std::int64_t size, std::int64_t bad = -1) : size_(size), bad_(bad) {}
  std::int64_t size() const override { return size_; }
  const std::vector<std::string>& class_names() const override { return names_; }
  int height() const override { return 1; }
  int width() const override { return 2; }
  int channels() const override { return 1; }
  std::int32_t label(std::int64_t index) const override { return static_cast<std::int32_t>(index); }
  void get(std::int64_t index, const Wants&, Image& image) const override {
    if (bad_ >= 0 && index >= bad_)
      throw Error(ErrorKind::data, "sample " + std::to_string(index) + " is broken");
    image.reshape(1, 2, 1);
    image.pixels[0] = static_cast<std::uint8_t>(index);
    image.pixels[1] = static_cast<std::uint8_t>(255 - index);
  }

 private:
  std::int64_t size_, bad_;
  std::vector<std::string> names_ = {"one", "two"};
};

std::vector<Batch> all(const Dataset& dataset, const LoaderOptions& options, int limit = 1000) {
  Loader loader(dataset, options);
  std::vector<Batch> out;
  for (Batch batch; limit-- > 0 && loader.next(batch);) out.push_back(batch);
  return out;
}

bool same(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Batch& x, const Batch& y) {
    return x.images == y.images && x.labels == y.labels && x.first_position == y.first_position &&
           x.epoch == y.epoch && x.count == y.count;
  });
}

Transform flipping(int h, int w, int c) {
  AugmentOptions o;
  o.flip = Flip::random;
  return make_train_transform(o, h, w, c, {});
}

TEST(Order, IsAPermutationOfItsKey) {
  for (const std::int64_t n : {0, 1, 2, 7, 1000}) {
    std::vector<std::int64_t> order = epoch_order(1, 0, n);
    EXPECT_EQ(order, epoch_order(1, 0, n));
    if (n > 100) {
      EXPECT_NE(order, epoch_order(1, 1, n));
      EXPECT_NE(order, epoch_order(2, 0, n));
    }
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < n; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  }
  // Every place is about equally likely for the first element.
  std::vector<int> count(5);
  for (int epoch = 0; epoch < 5000; ++epoch)
    ++count[static_cast<std::size_t>(epoch_order(9, epoch, 5)[0])];
  for (const int n : count) EXPECT_NEAR(n, 1000, 120);
}

TEST(Loader, EverySampleOnceAndTheRaggedBatchKept) {
  const Numbered dataset(103);
  LoaderOptions options;
  options.batch = 10;
  options.epochs = 3;
  options.seed = 4;
  const auto batches = all(dataset, options);
  ASSERT_EQ(batches.size(), 33u);
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int32_t> labels;
    for (int i = 0; i < 11; ++i) {
      const Batch& batch = batches[static_cast<std::size_t>(11 * epoch + i)];
      EXPECT_EQ(batch.epoch, epoch);
      EXPECT_EQ(batch.first_position, 10 * i);
      EXPECT_EQ(batch.count, i == 10 ? 3 : 10);
      EXPECT_EQ(batch.images.size(), static_cast<std::size_t>(2 * batch.count));
      for (std::size_t k = 0; k < batch.labels.size(); ++k)
        EXPECT_FLOAT_EQ(batch.images[2 * k], batch.labels[k] / 127.5f - 1);
      labels.insert(labels.end(), batch.labels.begin(), batch.labels.end());
    }
    const auto order = epoch_order(4, epoch, 103);
    EXPECT_TRUE(std::equal(labels.begin(), labels.end(), order.begin(), order.end()));
  }
}

TEST(Loader, WorkersDoNotChangeTheResult) {
  const auto dataset = synthetic({16, 16, 3, 10, 500, 10}, Split::train, 1);
  LoaderOptions options;
  options.batch = 64;
  options.epochs = 2;
  options.workers = 0;
  options.transform = flipping(16, 16, 3);
  const auto expected = all(*dataset, options);
  for (const auto& [workers, prefetch] : {std::pair{1, 1}, {1, 3}, {2, 2}, {5, 3}, {8, 8}}) {
    options.workers = workers;
    options.prefetch = prefetch;
    EXPECT_TRUE(same(all(*dataset, options), expected)) << workers;
  }
}

TEST(Loader, ResumesAnywhere) {
  const Numbered dataset(50);
  LoaderOptions options;
  options.batch = 8;
  options.epochs = 3;
  const auto whole = all(dataset, options);  // 7 batches per epoch
  for (const std::size_t skip : {1u, 6u, 7u, 13u}) {
    LoaderOptions later = options;
    later.first_epoch = whole[skip].epoch;
    later.first_position = whole[skip].first_position;
    later.epochs = 3 - later.first_epoch;
    EXPECT_TRUE(
        same(all(dataset, later), {whole.begin() + static_cast<std::ptrdiff_t>(skip), whole.end()}))
        << skip;
  }
  LoaderOptions end = options;  // the position after the last sample is the next epoch
  end.first_position = 50;
  EXPECT_TRUE(same(all(dataset, end), {whole.begin() + 7, whole.end()}));
}

TEST(Loader, WithoutEndAndWithoutShuffle) {
  const Numbered dataset(5);
  LoaderOptions options;
  options.batch = 2;
  options.shuffle = false;
  const auto batches = all(dataset, options, 100);
  ASSERT_EQ(batches.size(), 100u);
  EXPECT_EQ(batches[99].epoch, 33);
  EXPECT_EQ(batches[98].labels, (std::vector<std::int32_t>{4}));
  options.samples = 3;
  EXPECT_EQ(all(dataset, options, 4)[3].labels, (std::vector<std::int32_t>{2}));
  options.samples = 100;  // more than there are
  EXPECT_EQ(all(dataset, options, 3)[2].labels, (std::vector<std::int32_t>{4}));
}

TEST(Loader, FlipMirrorsAboutHalf) {
  const Numbered dataset(200);
  LoaderOptions options;
  options.batch = 200;
  options.epochs = 2;
  options.shuffle = false;
  options.transform = flipping(1, 2, 1);
  const auto batches = all(dataset, options);
  int flipped = 0, changed = 0;
  for (std::size_t i = 0; i < 200; ++i) {
    const float pixel = static_cast<float>(i) / 127.5f - 1;
    const bool first = std::abs(batches[0].images[2 * i] - pixel) > 1e-4f;
    if (first) {
      EXPECT_NEAR(batches[0].images[2 * i + 1], pixel, 1e-4f);
    }
    flipped += first;
    changed += batches[0].images[2 * i] != batches[1].images[2 * i];
  }
  EXPECT_NEAR(flipped, 100, 35);
  EXPECT_NEAR(changed, 100, 35);
}

TEST(Loader, NormalisesPerChannel) {
  const auto dataset = synthetic({8, 8, 3, 2, 4, 4}, Split::train, 1);
  const Normalisation statistics{{0, 0.5f, 1}, {1, 0.25f, 2}};
  LoaderOptions options;
  options.batch = 1;
  options.epochs = 1;
  options.shuffle = false;
  const auto plain = all(*dataset, options)[0];
  options.transform = make_eval_transform({}, 8, 8, 3, statistics);
  const auto batch = all(*dataset, options)[0];
  Image image;
  dataset->get(0, {}, image);
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    EXPECT_EQ(batch.images[i],
              static_cast<float>((image.pixels[i] / 255.0 - statistics.mean[i % 3]) /
                                 statistics.deviation[i % 3]));
    EXPECT_EQ(plain.images[i], static_cast<float>((image.pixels[i] / 255.0 - 0.5) / 0.5));
  }
  EXPECT_EQ(error_of([&] {
              make_eval_transform({}, 8, 8, 3, {{0, 0}, {1}});
            }).kind,
            ErrorKind::usage);
  EXPECT_EQ(error_of([&] { make_eval_transform({}, 8, 8, 3, {{0}, {0}}); }).kind, ErrorKind::usage);
}

TEST(Loader, WorkerErrorsReachTheConsumerInOrder) {
  for (const int workers : {0, 1, 4}) {
    LoaderOptions options;
    options.batch = 10;
    options.shuffle = false;
    options.workers = workers;
    const Numbered dataset(100, 35);
    dataset.bad().say = [](const std::string&) {};
    Loader loader(dataset, options);
    Batch batch;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(loader.next(batch));
    for (int again = 0; again < 2; ++again) {
      const Error error = error_of([&] { loader.next(batch); });
      EXPECT_EQ(error.kind, ErrorKind::data);
      // All that are bad are counted, and the one that came first is named first.
      EXPECT_NE(std::string(error.what()).find("data: 65 of 100 images"), std::string::npos)
          << error.what();
      EXPECT_NE(std::string(error.what()).find("also: sample 35 is broken"), std::string::npos)
          << error.what();
    }
  }
}

TEST(Loader, ShutsDownAtAnyTime) {
  const auto dataset = synthetic({32, 32, 3, 10, 5000, 10}, Split::train, 1);
  LoaderOptions options;
  options.workers = 3;
  for (int taken = 0; taken < 20; ++taken) {
    Loader loader(*dataset, options);
    Batch batch;
    for (int i = 0; i < taken % 4; ++i) loader.next(batch);
  }
  options.epochs = 0;
  Batch batch;
  EXPECT_FALSE(Loader(*dataset, options).next(batch));
  EXPECT_EQ(error_of([&] { Loader(Numbered(0), options); }).kind, ErrorKind::data);
}

}  // namespace
}  // namespace tessera::data::loader_test
