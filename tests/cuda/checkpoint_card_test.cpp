// A checkpoint knows nothing of the device that wrote it: what the CPU began the card goes on with,
// and back.
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "checkpoint/saver.h"
#include "cuda/card.h"
#include "files/scratch.h"
#include "session/init.h"

namespace tessera::test::checkpoint_card_test {
namespace {

// Steps [first, last], from the newest checkpoint in `folder` unless they begin at 1; then saves.
std::vector<double> losses_of(config::Config c, const std::string& device,
                              const std::filesystem::path& folder, int first, int last) {
  c.run.device = device;
  run::Session session(c);
  session.compiled(run::Goal::train, c.batch.global);
  if (first == 1) {
    session.load(run::initial_weights(3));
  } else {
    std::vector<std::string> notes;
    const auto found = run::load_newest_checkpoint(folder, session, 1000, notes);
    EXPECT_TRUE(found.has_value());
    EXPECT_EQ(found ? found->step : -1, first - 1);
  }
  std::vector<double> losses;
  for (int step = first; step <= last; ++step) {
    const Samples s = samples_of(c.model, step, c.batch.global);
    losses.push_back(session.train_step(s.images, s.labels, 1e-2, step, step * 100).loss);
  }
  run::Progress progress;
  progress.step = last;
  run::Saver saver(folder, {2, true}, run::Ranks(nullptr));
  saver.save(session, progress, nlohmann::json::object(), {});
  saver.wait();
  return losses;
}

class OnCardCheckpoints : public OnCard {
 protected:
  void go_on_elsewhere(const std::string& family, const std::string& dtype, double tolerance) {
    SCOPED_TRACE(family + " " + dtype);
    const Scratch scratch;
    config::Config c = tiny(family, dtype);
    c.ema.decay = 0.9;
    if (family == "vit") c.model.dropout = 0.1;
    const std::vector<double> whole = losses_of(c, "cpu", scratch / "whole", 1, 9);
    std::vector<double> parts;
    for (const auto& [device, first] :
         {std::pair{"cpu", 1}, std::pair{"cuda", 4}, std::pair{"cpu", 7}})
      for (const double loss : losses_of(c, device, scratch / "parts", first, first + 2))
        parts.push_back(loss);
    EXPECT_LE(difference(parts, whole), tolerance);
    RecordProperty("cases", ++seen_);
  }
  int seen_ = 0;
};

TEST_F(OnCardCheckpoints, GoOnOnTheOtherDevice) {
  for (const char* family : {"vit", "swin", "resnet"}) go_on_elsewhere(family, "f64", 1e-9);
  for (const char* family : {"vit", "swin"}) go_on_elsewhere(family, "f32", 1e-4);
}

}  // namespace
}  // namespace tessera::test::checkpoint_card_test
