#include "data/loader.h"

#include <fmt/format.h>

#include <system_error>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "data/order.h"

namespace tessera::data {
namespace {

// Samples that a worker claims at once: small enough to share one batch, large enough that the lock is rare.
constexpr std::int64_t claim_size = 16;

std::vector<float> normalisation_table(const LoaderOptions& options, int channels) {
  for (const auto* list : {&options.mean, &options.deviation})
    if (list->size() != 1 && list->size() != static_cast<std::size_t>(channels))
      throw Error(ErrorKind::usage,
                  fmt::format("mean and deviation need 1 or {} numbers, one per channel; found {}", channels, list->size()), "data");
  std::vector<float> table(static_cast<std::size_t>(channels) * 256);
  for (int k = 0; k < channels; ++k) {
    const double mean = options.mean[options.mean.size() == 1 ? 0 : k],
                 deviation = options.deviation[options.deviation.size() == 1 ? 0 : k];
    if (!std::isfinite(mean) || !std::isfinite(deviation) || deviation <= 0)
      throw Error(ErrorKind::usage,
                  fmt::format("mean {} and deviation {} of channel {}: expected finite numbers, the deviation above 0", mean, deviation, k),
                  "data");
    for (int value = 0; value < 256; ++value)
      table[static_cast<std::size_t>(k) * 256 + value] = static_cast<float>((value / 255.0 - mean) / deviation);
  }
  return table;
}

}  // namespace

Loader::Loader(const Dataset& dataset, LoaderOptions options) : dataset_(dataset), options_(std::move(options)) {
  samples_ = options_.samples < 0 ? dataset.size() : std::min(options_.samples, dataset.size());
  if (samples_ == 0) throw Error(ErrorKind::data, "the data set is empty", "data");
  CHECK(options_.batch > 0 && options_.workers >= 0 && options_.prefetch > 0, "loader options are positive");
  CHECK(options_.first_epoch >= 0 && options_.first_position >= 0 && options_.first_position <= samples_,
        "the loader begins inside the data");
  normalised_ = normalisation_table(options_, dataset.channels());
  epoch_ = options_.first_epoch - 1;
  position_ = samples_;  // so that the first assign() opens first_epoch
  slots_.resize(options_.workers == 0 ? 1 : static_cast<std::size_t>(options_.prefetch));
  for (Slot& slot : slots_) assign(slot);
  try {
    for (int i = 0; i < options_.workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    stop();
    throw Error(ErrorKind::memory,
                fmt::format("the system gave {} of {} loader threads: {}", workers_.size(), options_.workers, error.what()), "data.workers",
                "use fewer");
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
  if (workers_.empty() && slot.finished == 0) {
    lock.unlock();
    std::vector<std::uint8_t> scratch(dataset_.pixels_per_image());
    prepare(slot, 0, slot.batch.count, scratch);
    lock.lock();
  }
  progress_.wait(lock, [&] { return slot.finished == slot.batch.count; });
  if (slot.error) std::rethrow_exception(slot.error);
  std::swap(batch, slot.batch);
  assign(slot);
  due_ = (due_ + 1) % slots_.size();
  lock.unlock();
  more_work_.notify_all();
  return true;
}

// Gives a free slot the next batch of the sequence. The caller holds the mutex (or is the constructor).
void Loader::assign(Slot& slot) {
  slot.claimed = slot.finished = 0;
  if (position_ >= samples_) {
    ++epoch_;
    position_ = epoch_ == options_.first_epoch ? options_.first_position : 0;
    if (position_ == samples_) ++epoch_, position_ = 0;
    if (options_.epochs < 0 || epoch_ < options_.first_epoch + options_.epochs) {
      order_ =
          options_.shuffle ? epoch_order(options_.seed, epoch_, samples_) : std::vector<std::int64_t>(static_cast<std::size_t>(samples_));
      if (!options_.shuffle) std::iota(order_.begin(), order_.end(), 0);
    }
  }
  slot.last = options_.epochs >= 0 && epoch_ >= options_.first_epoch + options_.epochs;
  Batch& batch = slot.batch;
  batch.epoch = epoch_;
  batch.first_position = position_;
  batch.count = slot.last ? 0 : std::min(options_.batch, samples_ - position_);
  batch.labels.resize(static_cast<std::size_t>(batch.count));
  batch.images.resize(static_cast<std::size_t>(batch.count) * dataset_.pixels_per_image());
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
  std::vector<std::uint8_t> scratch(dataset_.pixels_per_image());
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

void Loader::prepare(Slot& slot, std::int64_t begin, std::int64_t end, std::vector<std::uint8_t>& scratch) {
  std::exception_ptr error;
  std::int64_t at = begin;
  try {
    for (; at < end; ++at) fill(slot, at, scratch);
  } catch (...) {
    error = std::current_exception();
  }
  std::lock_guard lock(mutex_);
  // The first failing sample of the batch speaks, whichever worker was faster.
  if (error && (!slot.error || at < slot.error_at)) slot.error = error, slot.error_at = at;
  slot.finished += end - begin;
  if (slot.finished == slot.batch.count) progress_.notify_one();
}

void Loader::fill(Slot& slot, std::int64_t sample, std::vector<std::uint8_t>& scratch) const {
  const int h = dataset_.height(), w = dataset_.width(), c = dataset_.channels();
  dataset_.get(slot.indices[static_cast<std::size_t>(sample)], scratch, slot.batch.labels[static_cast<std::size_t>(sample)]);
  const Key key = Key{options_.seed}.with("flip").with(static_cast<std::uint64_t>(slot.batch.epoch));
  const bool flip = options_.flip && (random_bits(key, static_cast<std::uint64_t>(slot.batch.first_position + sample)) & 1);
  float* dst = slot.batch.images.data() + static_cast<std::size_t>(sample) * scratch.size();
  for (int y = 0; y < h; ++y)
    for (int x = 0; x < w; ++x) {
      const std::uint8_t* src = &scratch[(static_cast<std::size_t>(y) * w + (flip ? w - 1 - x : x)) * c];
      for (int k = 0; k < c; ++k) *dst++ = normalised_[static_cast<std::size_t>(k) * 256 + src[k]];
    }
}

}  // namespace tessera::data
