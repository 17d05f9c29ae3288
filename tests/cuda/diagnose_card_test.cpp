// A step that was skipped is run again eagerly on the card, with every result looked at: the first
// bad equation is the one that the CPU names, in the same words.
#include "train/diagnose.h"

#include <cstring>
#include <limits>

#include "checkpoint/state_tensors.h"
#include "cuda/card.h"
#include "files/scratch.h"
#include "session/init.h"
#include "verbs/verbs.h"

namespace tessera::test::diagnose_card_test {
namespace {

class OnCardDiagnose : public OnCard {
 protected:
  void TearDown() override { RecordProperty("cases", seen_); }
  int seen_ = 0;
};

// Two good steps, so that the bad one would be a replayed graph; then `name` gets a bad element.
std::string first_bad(const std::string& device, const std::string& dtype, const std::string& name,
                      float value) {
  const config::Config c = preset_on(device, "vit_micro", dtype, 4);
  run::Session session(c);
  session.load(run::initial_weights(3));
  for (int step = 1; step <= 2; ++step) {
    const Samples s = samples_of(c.model, step, 4);
    EXPECT_TRUE(session.train_step(s.images, s.labels, 1e-3, step, step * 4).ok);
  }
  for (const run::StateTensor& t : run::state_tensors(session))
    if (t.name == name)
      session.executor().write_persistent(t.buffer, t.offset, std::as_bytes(std::span(&value, 1)));
  const Samples s = samples_of(c.model, 3, 4);
  const run::StepInputs inputs{s.images, s.labels, 1e-3, 3, 12};
  EXPECT_FALSE(session.train_step(inputs).ok) << device;
  const std::string text = run::first_bad_tensor(session, inputs);
  EXPECT_EQ(run::first_bad_tensor(session, inputs), text) << device;  // nothing was changed
  return text;
}

TEST_F(OnCardDiagnose, NamesWhatTheCpuNames) {
  for (const char* dtype : {"f32", "bf16"})
    for (const char* name :
         {"param.encoder.layers.encoder_layer_1.mlp.0.weight", "param.encoder.ln.weight"}) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      const std::string cpu = first_bad("cpu", dtype, name, nan);
      EXPECT_NE(cpu.find("first bad tensor: "), cpu.npos) << cpu;
      EXPECT_EQ(first_bad("cuda", dtype, name, nan), cpu);
      ++seen_;
    }
}

// The whole way: the loop runs ahead, skips ten steps, and runs the last of them again.
TEST_F(OnCardDiagnose, ARunThatGivesUpNamesTheEquation) {
  const auto given_up = [](const std::string& device) {
    const Scratch scratch;
    config::Config c = preset_on(device, "vit_micro", "f32", 4);
    c.data.source = "synthetic:32x32x3,10";
    c.data.train_size = 80;
    c.data.test_size = 4;
    c.data.workers = 1;
    c.run.epochs = 1;
    c.run.out = (scratch / "run").string();
    c.run.name = "bad";
    c.optim.name = "sgd";
    c.optim.clip = 0;
    c.optim.lr = 1e30;
    run::TrainOptions options;
    options.quiet = true;
    try {
      run::train(c, options);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind, ErrorKind::nonfinite) << e.what();
      const std::size_t at = e.message.find("first bad tensor: ");
      // How many elements are bad depends on roundings; which equation it is does not.
      return at == std::string::npos ? e.message
                                     : e.message.substr(at, e.message.find(", has ", at) - at);
    }
    return std::string("it came to its end");
  };
  const std::string cpu = given_up("cpu");
  EXPECT_TRUE(cpu.starts_with("first bad tensor: ")) << cpu;
  EXPECT_EQ(given_up("cuda"), cpu);
  ++seen_;
}

}  // namespace
}  // namespace tessera::test::diagnose_card_test
