// Batches of a data set, prepared ahead of time by background threads.
// Convention: what a batch holds is a function of (data set, options, epoch, position) alone, never
// of the number of workers or of their timing. A sample that cannot be had is replaced by the next
// index that can (counted up from it, after the last comes the first), whose label it takes; the
// data set's BadSamples learns of it when the batch is handed out.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/picture_draw.h"
#include "data/dataset.h"
#include "data/transform.h"

namespace tessera::data {

struct Batch {
  // [count, height, width, channels]: normalised numbers, or pixels (LoaderOptions::bytes); the
  // other is empty. Both are where the device holds the pictures (LoaderOptions::held): then
  // `samples` says which.
  std::vector<float> images;
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> samples;  // [count] in the data set
  std::vector<PictureDraw> draws;     // [count] when the device augments
  std::vector<std::int32_t> labels;   // [count]
  std::vector<float> targets;  // [count, classes] when a mix made soft targets; empty: the labels
  std::vector<float> weights;  // [count] when samples are weighted; empty: all alike
  std::int64_t first_position = 0, count = 0, epoch = 0;
  int height = 0, width = 0, channels = 0;
};

struct LoaderOptions {
  std::int64_t batch = 128;  // global batch; the last one of an epoch may be smaller
  std::uint64_t seed = 0;
  bool shuffle = true;        // false: the data set's own order
  bool balanced = false;      // every class equally often (order.h); needs shuffle
  bool drop_last = false;     // leave out the last batch of an epoch when it is smaller
  int height = 0, width = 0;  // of the model; 0: the data set's own
  Transform transform;        // unset: to the model's size, not augmented (augment.h)
  bool bytes = false;         // fill Batch::pixels by transform.pixels, and not the images
  bool held = false;          // fill Batch::samples, and neither pixels nor images
  std::function<PictureDraw(const SampleKey& key)> draw;  // fills Batch::draws; unset: none
  std::vector<float> class_weights;                       // one per class: fills Batch::weights
  std::function<void(Batch& batch)>
      mix;  // once per complete batch, by the thread that completed it
  std::function<bool(std::int64_t sample, std::int64_t count)>
      wants;                  // of a batch of `count`; of others only label and weight
  std::int64_t samples = -1;  // only the first so many of the data set; -1: all
  std::int64_t first_epoch = 0, first_position = 0;  // where to begin: what a resumed run needs
  std::int64_t epochs = -1;  // how many, counted from first_epoch; -1: without end
  int workers = 2;           // 0: next() prepares the batch itself
  int prefetch = 3;          // batches in preparation
};

class Loader {
 public:
  // The data set must outlive the loader.
  Loader(const Dataset& dataset, LoaderOptions options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch, in order, into `batch` (whose storage is reused); false after the last epoch.
  // An error of a worker is thrown here, when its batch is due. One consumer thread.
  bool next(Batch& batch);
  // Returns when everything that the workers may prepare ahead is prepared: for measuring.
  void settle();

  std::int64_t samples() const { return samples_; }
  // Positions of an epoch: all samples, or with drop_last those of whole batches.
  std::int64_t epoch_samples() const { return epoch_samples_; }
  std::int64_t batches_per_epoch() const {
    return (epoch_samples_ + options_.batch - 1) / options_.batch;
  }

 private:
  // One batch in preparation. Guarded by mutex_ except for disjoint parts of `batch`, each written
  // by the worker that claimed it.
  struct Slot {
    Batch batch;
    std::vector<std::int64_t> indices;
    std::vector<std::pair<std::int64_t, std::pair<std::int64_t, std::string>>>
        bad;  // sample: index, problem
    std::int64_t claimed = 0, finished = 0;
    std::exception_ptr error;
    std::int64_t error_at = 0;
    bool ready = false;  // finished and mixed
    bool last = false;   // stands for the end of the data
  };

  void stop();
  void assign(Slot& slot);
  void open_epoch();
  bool claim(Slot*& slot, std::int64_t& begin, std::int64_t& end);
  void prepare(Slot& slot, std::int64_t begin, std::int64_t end, Image& scratch);
  void fill(Slot& slot, std::int64_t sample, Image& scratch);
  SampleKey key_of(const Slot& slot, std::int64_t sample) const;
  SampleKey read(Slot& slot, std::int64_t sample, Image& scratch);
  void report_bad(Slot& slot);
  void work();

  const Dataset& dataset_;
  LoaderOptions options_;
  std::int64_t samples_ = 0, epoch_samples_ = 0, epoch_ = 0,
               position_ = 0;        // of the next batch to assign
  std::size_t values_ = 0;           // of one image
  std::vector<std::int64_t> order_;  // of epoch_
  std::vector<Slot> slots_;
  std::size_t due_ = 0;  // the slot that next() returns; the others follow in a ring
  bool stop_ = false;
  std::mutex mutex_;
  std::condition_variable more_work_, progress_;
  std::vector<std::thread> workers_;
};

}  // namespace tessera::data
