// A checkpoint knows nothing of the layout that wrote it: any other goes on from it. And what
// several ranks write together is whole.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/rng.h"

#include "checkpoint/checkpoint.h"
#include "checkpoint/saver.h"
#include "files/scratch.h"
#include "parallel/world.h"
#include "session/init.h"

namespace tessera::test::resume_test {
namespace {

struct Step {
  std::vector<float> images;
  std::vector<std::int32_t> labels;
};
Step batch(const config::Config& c, int step) {
  const models::ModelConfig& m = c.model;
  Step out;
  const Key key = Key{7}.with(static_cast<std::uint64_t>(step));
  out.images.resize(static_cast<std::size_t>(c.batch.global * m.image_h * m.image_w * m.channels));
  for (std::size_t i = 0; i < out.images.size(); ++i)
    out.images[i] = static_cast<float>(normal(key, i));
  for (std::int64_t i = 0; i < c.batch.global; ++i)
    out.labels.push_back(static_cast<std::int32_t>(i % m.classes));
  return out;
}

void on_all(const config::Config& c, const std::function<void(comm::Comm*)>& body) {
  if (ranks_of(c) == 1) return body(nullptr);
  comm::run_local(ranks_of(c), [&](comm::Comm& world) { body(&world); });
}

// Trains `steps` from scratch (or from the newest checkpoint in `run`), saves if asked, and gives
// the losses of rank 0.
std::vector<double> steps_of(const config::Config& c, const std::filesystem::path& run, int first,
                             int last, bool resume, bool save) {
  std::vector<double> losses;
  on_all(c, [&](comm::Comm* world) {
    run::Session session(c, {}, world);
    compiled_step(session, c.batch.global);
    if (resume) {
      std::vector<std::string> notes;
      const auto found = run::load_newest_checkpoint(run, session, 1000, notes);
      ASSERT_TRUE(found.has_value());
      EXPECT_EQ(found->step, first - 1);
    } else {
      session.load(run::initial_weights(3));
    }
    for (int step = first; step <= last; ++step) {
      const Step b = batch(c, step);
      const run::StepResult r = session.train_step(b.images, b.labels, 1e-2, step, step * 100);
      if (session.rank() == 0) losses.push_back(r.loss);
    }
    if (!save) return;
    run::Progress progress;
    progress.step = last;
    run::Saver saver(run, {2, true}, run::Ranks(world));
    saver.save(session, progress, nlohmann::json::object(), {});
    saver.wait();
  });
  return losses;
}

struct Case {
  std::string model, before, after;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << ": " << c.before << " -> " << c.after;
}

class Resume : public testing::TestWithParam<Case> {};

TEST_P(Resume, OntoAnotherLayout) {
  const Case& c = GetParam();
  for (const char* dtype : {"f64", "f32"}) {
    const Scratch scratch;
    config::Config plain = tiny(c.model, dtype);
    plain.ema.decay = 0.9;
    plain.batch.accumulate =
        with_layout(plain, c.before).batch.accumulate;  // statistics are those of a micro-batch
    const auto whole = steps_of(plain, scratch / "none", 1, 6, false, false);
    const auto first = steps_of(with_layout(plain, c.before), scratch / "run", 1, 3, false, true);
    const auto rest = steps_of(with_layout(plain, c.after), scratch / "run", 4, 6, true, true);
    ASSERT_EQ(rest.size(), 3u);
    const double tolerance = dtype[1] == '6' ? 1e-9 : 1e-6;
    EXPECT_NEAR(rest[0], whole[3], tolerance * whole[3]) << dtype;
    if (dtype[1] == '6') {
      EXPECT_NEAR(rest[2], whole[5], tolerance * whole[5]);
    }
    // The second layout's checkpoint is as sound as the first's.
    const auto last = run::open_checkpoint(scratch / "run/ckpt/step-6");
    EXPECT_EQ(run::progress_of(*last).step, 6);
  }
}

const Case cases[] = {{"vit", "dp4 zero3", "dp2 tp2"},
                      {"vit", "dp2 tp2", "dp4 zero3"},
                      {"vit", "dp3 zero1", "dp1"},
                      {"vit", "dp1", "dp2 sp2 zero2"},
                      {"vit", "sp2 tp2 zero3", "tp4 megatron"},
                      {"swin", "dp2 tp2 zero3", "dp3 zero2"},
                      {"resnet", "dp2 tp2 zero1", "dp4"},
                      {"resnet", "dp3 zero3", "tp2"},
                      {"vit", "pp2 acc4 1f1b", "dp2 acc4"},
                      {"vit", "tp2 acc2", "pp2 acc2 zb"},
                      {"vit", "pp2 dp2 zero3 acc2 gpipe", "acc2"},
                      {"vit", "acc2", "pp2 dp2 zero1 acc2"},
                      {"swin", "pp4 acc2 1f1b", "pp2 acc2 interleaved2"},
                      {"resnet", "segments2 acc2", "pp2 acc2 zb"}};
INSTANTIATE_TEST_SUITE_P(Layouts, Resume, testing::ValuesIn(cases));

}  // namespace
}  // namespace tessera::test::resume_test
