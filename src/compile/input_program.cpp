#include "compile/input_program.h"

#include "base/picture_draw.h"
#include "input/augment.h"

namespace tessera::run {
namespace {

using namespace ir;

// Pictures u8[b,h,w,c], of samples or of their partners: fed, or taken out of those that the device
// holds, and resized where these have another size.
class Pictures {
 public:
  Pictures(Builder& b, const config::Config& config, std::int64_t batch, ImageForm form)
      : b_(b),
        form_(form),
        one_{config.model.image_h, config.model.image_w, config.model.channels},
        held_{config.data.held_h, config.data.held_w, config.model.channels},
        fit_(form == ImageForm::held ? fit_held(config) : data::Resampling{}),
        batch_(batch) {
    if (form == ImageForm::held)
      set_ = b.input(Input::state, "pictures", {DType::u8, shape(config.data.held, held_), {}}, {},
                     Role::pictures);
  }

  Var fed(const char* images, const char* samples, const char* name) {
    if (form_ != ImageForm::held)
      return b_.input(Input::batch, images, {DType::u8, shape(batch_, one_), {}});
    const Var places = b_.input(Input::batch, samples, {DType::i32, {batch_}, {}});
    const auto scope = b_.scope("input");
    const Var own = b_.emit1(Op::gather_samples, None{}, {set_, places}, name);
    return held_ == one_ ? own
                         : b_.emit1(Op::resize, fitted(), {own}, std::string(name) + "_resized");
  }

 private:
  static Shape shape(std::int64_t n, const Shape& one) { return {n, one[0], one[1], one[2]}; }

  Resize fitted() const {
    const data::Region& kept = fit_.window;
    const bool cubic = fit_.filter == data::Filter::bicubic;
    return {.height = fit_.h,
            .width = fit_.w,
            .top = kept.top,
            .left = kept.left,
            .rows = kept.h,
            .columns = kept.w,
            .cubic = cubic};
  }

  Builder& b_;
  ImageForm form_;
  Shape one_, held_;  // of the model, of what the device holds
  data::Resampling fit_;
  std::int64_t batch_;
  Var set_ = none;
};

}  // namespace

Var write_input(Builder& b, const StepSpec& spec, std::int64_t batch, ImageForm form) {
  const models::ModelConfig& m = spec.config.model;
  if (form == ImageForm::numbers)
    return b.input(Input::batch, "images",
                   {spec.real, {batch, m.image_h, m.image_w, m.channels}, {}});
  Pictures pictures(b, spec.config, batch, form);
  const Var own = pictures.fed("images", "samples", "gathered");
  const data::Normalisation statistics = normalisation(spec.config);
  const data::DeviceWork work =
      form == ImageForm::pixels ? data::DeviceWork{} : device_work(spec.config);
  if (!work.any()) {
    const auto scope = b.scope("input");
    return b.emit1(Op::normalise, Normalise{statistics.mean, statistics.deviation, spec.real},
                   {own}, "normalised");
  }
  const Type rows{DType::i32, {batch, picture_draw_columns}, {}};
  std::vector<Var> in = {own, b.input(Input::batch, "draws", rows)};
  if (work.mixes) {
    in.push_back(pictures.fed("partners", "partner_samples", "gathered_partners"));
    in.push_back(b.input(Input::batch, "partner_draws", rows));
  }
  const auto scope = b.scope("input");
  return b.emit1(Op::augment,
                 Augment{.mean = statistics.mean,
                         .deviation = statistics.deviation,
                         .to = spec.real,
                         .reflect = augment_options(spec.config).padding == data::Padding::reflect},
                 in, "augmented");
}

}  // namespace tessera::run
