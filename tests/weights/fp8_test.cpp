// Training and inference in eight bits on the CPU, whose kernels define what it means: it learns as
// bf16 does, its scales follow the largest numbers and survive a checkpoint.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/saver.h"
#include "files/scratch.h"
#include "session/init.h"

namespace tessera::run::fp8_test {
namespace {

using test::Scratch;

config::Config small(const std::string& dtype) {
  config::Config c;
  c.model = models::preset("vit_micro");
  c.model.depth = 2;
  c.model.head_init = "normal";
  c.precision.dtype = dtype;
  c.run.threads = 2;
  c.batch = {8, 8, 1};
  return c;
}

struct Trained {
  Session session;
  std::int64_t step = 0;
  explicit Trained(const config::Config& c) : session(c) { session.load(initial_weights(3)); }

  std::vector<float> images() const {
    const models::ModelConfig& m = session.config().model;
    std::vector<float> out(static_cast<std::size_t>(8 * m.image_h * m.image_w * m.channels));
    for (std::size_t k = 0; k < out.size(); ++k) out[k] = static_cast<float>(normal(Key{7}, k));
    return out;
  }
  std::vector<std::int32_t> labels() const { return {0, 1, 2, 3, 4, 5, 6, 7}; }
  double train(int steps) {
    StepResult last;
    for (int i = 0; i < steps; ++i) {
      last = session.train_step(images(), labels(), 2e-3, ++step, 0);
      EXPECT_TRUE(last.ok);
    }
    return last.loss;
  }
  std::map<std::string, std::vector<std::byte>> state() {
    std::map<std::string, std::vector<std::byte>> out;
    for (const StateTensor& t : state_tensors(session)) {
      std::vector<std::byte>& bytes = out[t.name];
      bytes.resize(static_cast<std::size_t>(t.bytes()));
      session.executor().read_persistent(t.buffer, t.offset, bytes);
    }
    return out;
  }
  void save(const std::filesystem::path& folder) {
    Snapshot snapshot;
    Progress progress;
    progress.step = step;
    take_snapshot(session, progress, {}, snapshot);
    write_checkpoint(folder, snapshot, {});
  }
  std::vector<float> history(const std::string& of) {
    const std::vector<std::byte> bytes = state().at("buffer.amax." + of);
    std::vector<float> out(bytes.size() / sizeof(float));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
};

TEST(Fp8, LearnsAsBf16Does) {
  Trained eight(small("fp8")), sixteen(small("bf16"));
  const double first = eight.train(1), second = sixteen.train(1);
  EXPECT_NEAR(first, second, 0.05 * second) << "before a scale was measured";
  EXPECT_NE(first, second) << "nothing was in eight bits";
  const double a = eight.train(14), b = sixteen.train(14);
  EXPECT_LT(a, 0.6 * first);
  EXPECT_NEAR(a, b, 0.1 * second);
}

TEST(Fp8, HistoriesHoldTheLargestNumbersOfEachStep) {
  Trained t(small("fp8"));
  t.train(3);
  // Two blocks of four products; each has a factor of its own, and a gradient.
  for (const char* of : {"activations", "weights", "gradients"}) {
    const std::vector<float> history = t.history(of);
    ASSERT_EQ(history.size(), 8u * 16u) << of;
    for (std::size_t i = 0; i < history.size(); ++i)
      EXPECT_EQ(history[i] > 0, i % 16 < 3) << of << " " << i;
  }
}

TEST(Fp8, GoesOnWithTheSameBits) {
  const Scratch scratch;
  Trained a(small("fp8")), b(small("fp8"));
  a.train(3);
  a.save(scratch.folder());
  std::vector<std::string> notes;
  ASSERT_TRUE(load_newest_checkpoint(scratch.folder(), b.session, 100, notes));
  b.step = a.step;
  EXPECT_EQ(b.state(), a.state());
  EXPECT_EQ(a.train(2), b.train(2));
  EXPECT_EQ(b.state(), a.state());
}

// Other micro-batches have other rows: scales are those of a first step again, and all else goes
// on.
TEST(Fp8, GoesOnWithOtherMicroBatchesAndSaysThatScalesStartAnew) {
  const Scratch scratch;
  Trained a(small("fp8"));
  a.train(3);
  a.save(scratch.folder());
  config::Config c = small("fp8");
  c.batch = {8, 4, 2};
  Trained b(c);
  std::vector<std::string> notes;
  ASSERT_TRUE(load_newest_checkpoint(scratch.folder(), b.session, 100, notes));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("written with other micro-batches"), std::string::npos) << notes[0];
  for (const float amax : b.history("activations")) EXPECT_EQ(amax, 0);
  const auto now = b.state();
  for (const auto& [name, bytes] : a.state()) {
    if (name.starts_with("buffer.amax.")) continue;
    EXPECT_EQ(bytes, now.at(name)) << name;
  }
  b.step = a.step;
  EXPECT_TRUE(std::isfinite(b.train(2)));
}

// A picture that is not finite spoils its step and nothing else.
TEST(Fp8, ANanDoesNotStay) {
  Trained t(small("fp8"));
  t.train(2);
  const std::vector<float> before = t.history("activations");
  std::vector<float> images = t.images();
  images[5] = std::nanf("");
  EXPECT_FALSE(t.session.train_step(images, t.labels(), 2e-3, 3, 0).ok);
  for (const char* of : {"activations", "weights", "gradients"})
    for (const float amax : t.history(of)) EXPECT_TRUE(std::isfinite(amax)) << of;
  EXPECT_EQ(t.history("activations"), before) << "rows of what was not finite stay";
  EXPECT_TRUE(std::isfinite(t.train(1)));
}

int quantised_products(const ir::Program& program) {
  int count = 0;
  for (const ir::Eqn& e : program.eqns)
    count += e.op == ir::Op::contract && std::get<ir::Contract>(e.attrs).scales > 0;
  return count;
}

// Each block has one activation, which no pass of its own makes or quantises.
TEST(Fp8, ProductsQuantiseTheActivationsBehindThem) {
  const auto count = [](const ir::Program& program) {
    int products = 0, passes = 0;
    for (const ir::Eqn& e : program.eqns) {
      products += e.op == ir::Op::contract && std::get<ir::Contract>(e.attrs).to;
      passes += e.op == ir::Op::quantize && std::get<ir::Quantize>(e.attrs).act == "gelu";
    }
    return std::pair(products, passes);
  };
  Session trains(small("fp8")), infers(small("fp8"), {}, nullptr, Use::inference);
  EXPECT_EQ(count(trains.planned({Goal::train, 8}).program), std::pair(2, 0));
  EXPECT_EQ(count(infers.planned({Goal::predict, 8}).program), std::pair(2, 0));
}

TEST(Fp8, EvaluationOfATrainingStaysInBf16) {
  Session trains(small("fp8")), infers(small("fp8"), {}, nullptr, Use::inference);
  EXPECT_EQ(quantised_products(trains.planned({Goal::train, 8}).program), 2 * 4 * 3);
  EXPECT_EQ(quantised_products(trains.planned({Goal::evaluate, 8}).program), 0);
  EXPECT_EQ(quantised_products(infers.planned({Goal::predict, 8}).program), 2 * 4);
}

TEST(Fp8, InferenceIsCloseToBf16) {
  Session eight(small("fp8"), {}, nullptr, Use::inference),
      sixteen(small("bf16"), {}, nullptr, Use::inference);
  eight.load(initial_weights(3));
  sixteen.load(initial_weights(3));
  const std::vector<float> images = Trained(small("bf16")).images();
  const std::vector<double> a = eight.predict(images, 8), b = sixteen.predict(images, 8);
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  EXPECT_GT(difference, 0);
  EXPECT_LT(std::sqrt(difference / size), 0.1);
}

TEST(Fp8, AModelWithoutBlocksIsRefused) {
  config::Config c = small("fp8");
  c.model = models::preset("resnet_micro_cifar");
  Session session(c);
  EXPECT_THROW((void)session.planned({Goal::train, 8}), Error);
}

}  // namespace
}  // namespace tessera::run::fp8_test
