// The inputs of a run of a plan. Convention: batches are global; a rank writes its own samples, and
// beside each its partner, the sample at its place XOR 1 (data/mix.h), which may be another rank's
// or micro-batch's.
#include "base/check.h"
#include "session/bytes.h"
#include "session/session.h"

namespace tessera::run {
namespace {

// The partners of samples first .. first + n of a batch of `count`, `each` elements a sample. One
// without a partner stands beside itself.
template <class T>
std::vector<T> partners_of(std::span<const T> all, std::size_t first, std::size_t n,
                           std::size_t count, std::size_t each) {
  std::vector<T> out;
  out.reserve(n * each);
  for (std::size_t i = first; i < first + n; ++i) {
    const std::size_t partner = (i ^ 1) < count ? i ^ 1 : i;
    const std::span<const T> one = all.subspan(partner * each, each);
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

}  // namespace

void Session::write_real(Ready& ready, const std::string& input, std::span<const float> values) {
  if (storage_dtype(config_) == ir::DType::f32)
    ready.loaded->write(input, std::as_bytes(values));
  else
    ready.loaded->write(input,
                        encode(std::vector<double>(values.begin(), values.end()), ir::DType::f64));
}

void Session::feed_images(Ready& ready, const Images& images, std::size_t first, std::size_t n,
                          const std::string& tag) {
  const std::size_t count = images.count(pixels());
  // An input, and that of the partners where the plan mixes.
  const auto put = [&](const char* name, const char* partners, auto all, std::size_t each) {
    if (!ready.plan().input(name + tag)) return;
    CHECK(all.size() == count * each, std::string("a whole batch of ") + name);
    ready.loaded->write(name + tag, std::as_bytes(all.subspan(first * each, n * each)));
    if (!ready.plan().input(partners + tag)) return;
    const auto theirs = partners_of(all, first, n, count, each);
    ready.loaded->write(partners + tag, std::as_bytes(std::span(theirs)));
  };
  switch (images.form()) {
    case ImageForm::numbers:
      if (ready.plan().input("images" + tag))
        write_real(ready, "images" + tag, images.numbers().subspan(first * pixels(), n * pixels()));
      return;
    case ImageForm::pixels:
    case ImageForm::drawn:
      put("images", "partners", images.pixels(), pixels());
      break;
    case ImageForm::held:
      put("samples", "partner_samples", images.samples(), 1);
  }
  put("draws", "partner_draws", images.draws(), 1);
}

void Session::feed(Ready& ready, const std::vector<std::int64_t>& micro, const StepInputs& in) {
  const auto classes = static_cast<std::size_t>(config_.model.classes);
  std::size_t at = 0;
  for (std::size_t i = 0; i < micro.size(); ++i) {
    const std::string tag = micro.size() > 1 ? "." + std::to_string(i) : "";
    const ir::Range mine = share(micro[i]);
    const std::size_t first = at + static_cast<std::size_t>(mine.begin),
                      n = static_cast<std::size_t>(mine.size);
    const auto real = [&](const std::string& name, std::span<const float> values,
                          std::size_t each) {
      if (ready.plan().input(name + tag))
        write_real(ready, name + tag, values.subspan(first * each, n * each));
    };
    feed_images(ready, in.images, first, n, tag);
    real("targets", in.targets, classes);
    real("weights", in.weights, 1);
    if (ready.plan().input("labels" + tag))
      ready.loaded->write("labels" + tag, std::as_bytes(in.labels.subspan(first, n)));
    at += static_cast<std::size_t>(micro[i]);
  }
}

void Session::hold(std::int64_t first, std::span<const std::uint8_t> pictures) {
  CHECK(holds_pictures(), "this rank holds no pictures");
  const std::int64_t bytes = config_.data.held_h * config_.data.held_w * config_.model.channels;
  CHECK(static_cast<std::int64_t>(pictures.size()) <= (config_.data.held - first) * bytes,
        "more pictures than the configuration holds");
  executor_->write_persistent("pictures", first * bytes, std::as_bytes(pictures));
}

}  // namespace tessera::run
