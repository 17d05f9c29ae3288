#include "data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "data/augment.h"
#include "data/order.h"

namespace tessera::data {
namespace {

// Samples that a worker claims at once: small enough to share one batch, large enough that the lock
// is rare.
constexpr std::int64_t claim_size = 16;

// How long a run that gives up looks for more bad samples to name.
constexpr auto look_for = std::chrono::seconds(5);

std::string problem_of(const Error& error) {
  return error.where.empty() ? error.message : error.where + ": " + error.message;
}

// Adds the bad samples that nobody has met yet. It returns whether it came to the end: where time
// is short or something else is wrong, those that are known must do.
bool look_at_rest(const Dataset& dataset, std::map<std::int64_t, std::string>& found) {
  const auto until = std::chrono::steady_clock::now() + look_for;
  Image image;
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    if (std::chrono::steady_clock::now() > until) return false;
    try {
      if (!found.contains(i)) dataset.get(i, {}, image);
    } catch (const Error& error) {
      if (error.kind != ErrorKind::data) return false;
      found.emplace(i, problem_of(error));
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  return true;
}

}  // namespace

Loader::Loader(const Dataset& dataset, LoaderOptions options)
    : dataset_(dataset), options_(std::move(options)) {
  LoaderOptions& o = options_;
  samples_ = o.samples < 0 ? dataset.size() : std::min(o.samples, dataset.size());
  if (samples_ == 0) throw Error(ErrorKind::data, "the data set is empty", "data");
  CHECK(o.batch > 0 && o.workers >= 0 && o.prefetch > 0, "loader options are positive");
  epoch_samples_ = o.drop_last ? samples_ / o.batch * o.batch : samples_;
  if (epoch_samples_ == 0)
    throw Error(
        ErrorKind::usage,
        fmt::format(
            "{} samples do not make one batch of {}, and data.drop_last leaves out the rest",
            samples_, o.batch),
        "data.drop_last", "use smaller batches");
  CHECK(o.first_epoch >= 0 && o.first_position >= 0 && o.first_position <= epoch_samples_,
        "the loader begins inside the data");
  CHECK(o.shuffle || !o.balanced, "balanced sampling draws at random");
  CHECK(o.class_weights.empty() ||
            o.class_weights.size() == static_cast<std::size_t>(dataset.classes()),
        "one weight per class");
  if (o.height == 0) {
    o.height = dataset.height();
    o.width = dataset.width();
  }
  CHECK(o.height > 0 && o.width > 0, "images of many sizes need the model's size");
  if (!o.transform.apply)
    o.transform = make_eval_transform({}, o.height, o.width, dataset.channels(), {});
  CHECK(!o.bytes || o.transform.pixels, "a transform that gives pixels");
  CHECK(!o.held || samples_ <= std::numeric_limits<std::int32_t>::max(), "indices are i32");
  values_ = static_cast<std::size_t>(o.height) * o.width * dataset.channels();
  epoch_ = o.first_epoch - 1;
  position_ = epoch_samples_;  // so that the first assign() opens first_epoch
  slots_.resize(o.workers == 0 ? 1 : static_cast<std::size_t>(o.prefetch));
  for (Slot& slot : slots_) assign(slot);
  try {
    for (int i = 0; i < o.workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::exception& error) {  // of threads, or of memory for them
    stop();
    throw Error(ErrorKind::memory,
                fmt::format("the system gave {} of {} loader threads: {}", workers_.size(),
                            o.workers, error.what()),
                "data.workers", "use fewer");
  }
}

Loader::~Loader() { stop(); }

void Loader::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  more_work_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

bool Loader::next(Batch& batch) {
  std::unique_lock lock(mutex_);
  Slot& slot = slots_[due_];
  if (slot.last) return false;
  if (workers_.empty() && !slot.ready) {
    lock.unlock();
    Image scratch;
    prepare(slot, 0, slot.batch.count, scratch);
    lock.lock();
  }
  progress_.wait(lock, [&] { return slot.ready; });
  report_bad(slot);
  if (slot.error) std::rethrow_exception(slot.error);
  std::swap(batch, slot.batch);
  assign(slot);
  due_ = (due_ + 1) % slots_.size();
  lock.unlock();
  more_work_.notify_all();
  return true;
}

void Loader::settle() {
  std::unique_lock lock(mutex_);
  if (workers_.empty()) return;
  progress_.wait(lock, [&] {
    return std::all_of(slots_.begin(), slots_.end(),
                       [](const Slot& s) { return s.ready || s.last; });
  });
}

// In the order of the batch, whoever found them first.
void Loader::report_bad(Slot& slot) {
  std::sort(slot.bad.begin(), slot.bad.end());
  for (const auto& [sample, what] : slot.bad)
    dataset_.bad().add(what.first, what.second, dataset_.size(),
                       [this](auto& found) { return look_at_rest(dataset_, found); });
  slot.bad.clear();
}

void Loader::open_epoch() {
  ++epoch_;
  position_ = epoch_ == options_.first_epoch ? options_.first_position : 0;
  if (position_ == epoch_samples_) {
    ++epoch_;
    position_ = 0;
  }
  if (options_.epochs >= 0 && epoch_ >= options_.first_epoch + options_.epochs) return;
  if (!options_.shuffle) {
    order_.resize(static_cast<std::size_t>(samples_));
    std::iota(order_.begin(), order_.end(), 0);
  } else if (options_.balanced) {
    std::vector<std::int32_t> labels(static_cast<std::size_t>(samples_));
    for (std::size_t i = 0; i < labels.size(); ++i)
      labels[i] = dataset_.label(static_cast<std::int64_t>(i));
    order_ = balanced_order(options_.seed, epoch_, labels, dataset_.classes());
  } else {
    order_ = epoch_order(options_.seed, epoch_, samples_);
  }
}

// Gives a free slot the next batch of the sequence. The caller holds the mutex (or is the
// constructor).
void Loader::assign(Slot& slot) {
  slot.claimed = slot.finished = 0;
  slot.ready = false;
  if (position_ >= epoch_samples_) open_epoch();
  slot.last = options_.epochs >= 0 && epoch_ >= options_.first_epoch + options_.epochs;
  Batch& batch = slot.batch;
  batch.epoch = epoch_;
  batch.first_position = position_;
  batch.count = slot.last ? 0 : std::min(options_.batch, epoch_samples_ - position_);
  batch.height = options_.height;
  batch.width = options_.width;
  batch.channels = dataset_.channels();
  batch.labels.resize(static_cast<std::size_t>(batch.count));
  const std::size_t values = options_.held ? 0 : static_cast<std::size_t>(batch.count) * values_;
  batch.images.resize(options_.bytes ? 0 : values);
  batch.pixels.resize(options_.bytes ? values : 0);
  batch.samples.assign(options_.held ? static_cast<std::size_t>(batch.count) : 0, 0);
  batch.draws.assign(options_.draw ? static_cast<std::size_t>(batch.count) : 0, {});
  batch.targets.clear();
  batch.weights.resize(options_.class_weights.empty() ? 0 : static_cast<std::size_t>(batch.count));
  slot.indices.assign(order_.begin() + position_, order_.begin() + position_ + batch.count);
  position_ += batch.count;
}

// The next unclaimed piece of the earliest batch.
bool Loader::claim(Slot*& slot, std::int64_t& begin, std::int64_t& end) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slot = &slots_[(due_ + i) % slots_.size()];
    if (slot->claimed == slot->batch.count) continue;
    begin = slot->claimed;
    end = slot->claimed = std::min(begin + claim_size, slot->batch.count);
    return true;
  }
  return false;
}

void Loader::work() {
  Image scratch;
  for (;;) {
    Slot* slot = nullptr;
    std::int64_t begin = 0, end = 0;
    {
      std::unique_lock lock(mutex_);
      more_work_.wait(lock, [&] { return stop_ || claim(slot, begin, end); });
      if (stop_) return;
    }
    prepare(*slot, begin, end, scratch);
  }
}

void Loader::prepare(Slot& slot, std::int64_t begin, std::int64_t end, Image& scratch) {
  std::exception_ptr error;
  std::int64_t at = begin;
  try {
    for (; at < end; ++at) fill(slot, at, scratch);
  } catch (...) {
    error = std::current_exception();
  }
  std::unique_lock lock(mutex_);
  // The first failing sample of the batch speaks, whichever worker was faster.
  if (error && (!slot.error || at < slot.error_at)) {
    slot.error = error;
    slot.error_at = at;
  }
  slot.finished += end - begin;
  if (slot.finished < slot.batch.count) return;
  if (options_.mix && !slot.error) {
    lock.unlock();  // nobody else looks at the batch: every part is finished, and next() waits for
                    // `ready`
    try {
      options_.mix(slot.batch);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) slot.error = error;
  }
  slot.ready = true;
  progress_.notify_one();
}

void Loader::fill(Slot& slot, std::int64_t sample, Image& scratch) {
  const auto i = static_cast<std::size_t>(sample);
  const auto wanted = [&](std::int64_t s) {
    return !options_.wants || options_.wants(s, slot.batch.count);
  };
  const auto label_of = [&](std::int64_t index) {
    const std::int32_t label = slot.batch.labels[i] = dataset_.label(index);
    if (!options_.class_weights.empty())
      slot.batch.weights[i] = options_.class_weights[static_cast<std::size_t>(label)];
  };
  if (!wanted(sample) && !(options_.mix && wanted(sample ^ 1)))
    return label_of(slot.indices[i]);  // a mix needs the partner
  const SampleKey key = options_.held ? key_of(slot, sample) : read(slot, sample, scratch);
  label_of(key.index);
  if (options_.draw) slot.batch.draws[i] = options_.draw(key);
  if (options_.held) {
    slot.batch.samples[i] = static_cast<std::int32_t>(key.index);
    return;
  }
  const auto mine = [&](auto& all) { return std::span(all).subspan(i * values_, values_); };
  if (options_.bytes)
    options_.transform.pixels(scratch, key, mine(slot.batch.pixels));
  else
    options_.transform.apply(scratch, key, mine(slot.batch.images));
}

SampleKey Loader::key_of(const Slot& slot, std::int64_t sample) const {
  return {.seed = options_.seed,
          .epoch = slot.batch.epoch,
          .position = slot.batch.first_position + sample,
          .index = slot.indices[static_cast<std::size_t>(sample)]};
}

// The image of the sample or of the one that replaces it, as far as the transform wants it.
SampleKey Loader::read(Slot& slot, std::int64_t sample, Image& scratch) {
  const std::int64_t allowed = BadSamples::allowed(dataset_.size());
  SampleKey key = key_of(slot, sample);
  std::vector<std::pair<std::int64_t, std::string>> bad;
  for (;;) {
    try {
      dataset_.get(key.index, options_.transform.wants_of(key), scratch);
      break;
    } catch (const Error& error) {
      if (error.kind != ErrorKind::data) throw;
      bad.emplace_back(key.index, problem_of(error));
    }
    if (static_cast<std::int64_t>(bad.size()) > allowed)
      break;  // too many already: next() will say so
    key.index = key.index + 1 == dataset_.size() ? 0 : key.index + 1;
  }
  if (bad.empty()) return key;
  std::lock_guard lock(mutex_);
  for (auto& found : bad) slot.bad.emplace_back(sample, std::move(found));
  if (static_cast<std::int64_t>(bad.size()) > allowed)
    scratch.reshape(options_.height, options_.width, dataset_.channels());
  return key;
}

}  // namespace tessera::data
