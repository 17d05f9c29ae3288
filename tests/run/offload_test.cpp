// Optimizer state that rests on the host or in a file: the same bits as on the device, the bytes
// that were planned, checkpoints that fit either, and a disk that fills up.
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "files/disk.h"
#include "files/scratch.h"
#include "session/init.h"
#include "session/room.h"

namespace tessera::run::offload_test {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::Scratch;

using State = std::map<std::string, std::vector<std::byte>>;

config::Config micro(const std::string& optimizer = "adamw") {
  config::Config c;
  c.model = models::preset("vit_micro");
  c.model.head_init = "normal";
  c.optim.name = optimizer;
  c.optim.clip = 1.0;
  c.batch = {4, 4, 1};
  c.run.threads = 2;
  return c;
}
// Pieces of 4 KiB: a bucket has several.
config::Config away(config::Config c, const std::string& home, const Scratch& scratch) {
  c.parallel.offload_optimizer = home;
  if (home == "file") c.parallel.offload_folder = scratch.folder().string();
  c.parallel.offload_mb = 1.0 / 256;
  return c;
}

struct Trained {
  Session session;
  std::int64_t step = 0;
  std::vector<double> losses;
  explicit Trained(const config::Config& c) : session(c) { session.load(initial_weights(3)); }
  void train(int steps) {
    const models::ModelConfig& m = session.config().model;
    for (int i = 0; i < steps; ++i) {
      std::vector<float> images(static_cast<std::size_t>(4 * m.image_h * m.image_w * m.channels));
      ++step;
      for (std::size_t k = 0; k < images.size(); ++k)
        images[k] = static_cast<float>(normal(Key{static_cast<std::uint64_t>(step)}, k));
      const std::vector<std::int32_t> labels = {1, 2, 3, 4};
      const StepResult r = session.train_step(images, labels, 1e-2, step, 0);
      ASSERT_TRUE(r.ok);
      losses.insert(losses.end(), {r.loss, r.grad_norm});
    }
  }
  State state() {
    State out;
    for (const StateTensor& t : state_tensors(session)) {
      std::vector<std::byte>& bytes = out[t.name];
      bytes.resize(static_cast<std::size_t>(t.bytes()));
      session.executor().read_persistent(t.buffer, t.offset, bytes);
    }
    return out;
  }
};

const plan::Plan& step_of(Session& session) { return session.compiled(Goal::train, 4).plan; }

TEST(OffloadedState, HasTheSameBitsAsOnTheDevice) {
  const Scratch scratch;
  for (const char* optimizer : {"adamw", "sgd", "lamb"}) {
    Trained resident(micro(optimizer));
    const int steps = std::string(optimizer) == "adamw" ? 20 : 4;
    resident.train(steps);
    for (const char* home : {"host", "file"})
      for (const bool overlap : {true, false}) {
        SCOPED_TRACE(std::string(optimizer) + " " + home + (overlap ? "" : " without overlap"));
        config::Config c = away(micro(optimizer), home, scratch);
        c.parallel.overlap = overlap;
        Trained moved(c);
        moved.train(steps);
        EXPECT_EQ(moved.losses, resident.losses);
        EXPECT_EQ(moved.state(), resident.state());
      }
  }
  EXPECT_TRUE(fs::is_empty(scratch.folder())) << "the file has no name";
}

TEST(OffloadedState, IsTheSameWithoutFusionAndInDoubles) {
  const Scratch scratch;
  for (const char* dtype : {"f32", "f64"}) {
    config::Config c = micro();
    c.run.fuse = std::string(dtype) == "f64";
    c.precision.dtype = dtype;
    c.ema.decay = 0.9;
    Trained resident(c), moved(away(c, "file", scratch));
    resident.train(3);
    moved.train(3);
    EXPECT_EQ(moved.state(), resident.state()) << dtype;
  }
}

// It takes three pieces of each moment of a device, whatever the model; all bytes are known before.
TEST(OffloadedState, TakesTheBytesThatWerePlanned) {
  const Scratch scratch;
  Trained resident(micro());
  resident.train(1);
  const plan::Plan& here = step_of(resident.session);
  ASSERT_GT(here.memory.optimizer, 10 * 3 * 2 * 4096);
  for (const ir::Home home : {ir::Home::host, ir::Home::file}) {
    SCOPED_TRACE(ir::name(home));
    Session session(away(micro(), std::string(ir::name(home)), scratch));
    const plan::Footprint room =
        reserve(session, {{Goal::train, 4}, {Goal::predict, 1}}, Ranks(nullptr));
    const plan::Plan& plan = step_of(session);
    EXPECT_EQ(session.executor().allocated_bytes(), room.bytes());
    const ir::Home other = home == ir::Home::host ? ir::Home::file : ir::Home::host;
    EXPECT_EQ(session.executor().away_bytes(home), room.bytes_on(home));
    EXPECT_EQ(session.executor().away_bytes(other), 0);
    EXPECT_EQ(room.bytes_on(other), 0);
    // The two counters of a step (its number, and what f16 keeps) stay; the moments are gone.
    EXPECT_EQ(plan.bytes_on(home), here.memory.optimizer - plan.memory.optimizer);
    EXPECT_LE(plan.memory.optimizer, 64);
    EXPECT_EQ(plan.memory.total(), plan.peak_bytes());
    EXPECT_LE(plan.peak_bytes(), here.peak_bytes() - plan.bytes_on(home) + 3 * 2 * 4096);
  }
}

// A checkpoint is the same wherever state and weights rest: it is read into the other form, and
// goes on alike.
TEST(OffloadedState, IsInCheckpoints) {
  const Scratch scratch, run;
  config::Config here = micro();
  here.parallel.zero = 3;
  here.parallel.persist = 64;
  Trained resident(here);
  resident.train(5);
  const std::vector<std::string> homes = {"file", "none", "host", "file"};
  for (std::size_t i = 0; i + 1 < homes.size(); ++i) {
    const auto config = [&](const std::string& home) {
      config::Config there = home == "none" ? here : away(here, home, scratch);
      there.parallel.offload_params = home;
      return there;
    };
    SCOPED_TRACE(homes[i] + " to " + homes[i + 1]);
    const fs::path folder = run.folder() / std::to_string(i);
    fs::create_directory(folder);
    Trained before(config(homes[i])), after(config(homes[i + 1]));
    before.train(2);
    Snapshot snapshot;
    Progress progress;
    progress.step = before.step;
    take_snapshot(before.session, progress, {{"classes", {"x"}}}, snapshot);
    write_checkpoint(folder, snapshot, {});
    std::vector<std::string> notes;
    const auto loaded = load_newest_checkpoint(folder, after.session, 100, notes);
    ASSERT_TRUE(loaded);
    EXPECT_EQ(after.state(), before.state());
    after.step = loaded->step;
    after.train(3);
    EXPECT_EQ(after.state(), resident.state());
  }
}

TEST(OffloadedState, AFullDiskIsAnErrorOfTheDisk) {
  const Scratch scratch;
  for (const bool overlap : {true, false}) {
    config::Config c = away(micro(), "file", scratch);
    c.parallel.overlap = overlap;
    Trained moved(c);
    moved.train(1);
    const files::DiskFault fault(6000, ENOSPC);
    const Error error = error_of([&] { moved.train(1); });
    EXPECT_EQ(error.kind, ErrorKind::disk);
    EXPECT_NE(error.message.find("cannot write the file: No space left"), std::string::npos)
        << error.message;
    EXPECT_EQ(error.where, scratch.folder().string());
  }
}

TEST(OffloadedState, AFolderThatIsNotThereIsAnErrorOfTheDisk) {
  const Scratch scratch;
  config::Config c = away(micro(), "file", scratch);
  c.parallel.offload_folder = (scratch.folder() / "nowhere").string();
  Session session(c);
  const Error error = error_of([&] { session.compiled(Goal::train, 4); });
  EXPECT_EQ(error.kind, ErrorKind::disk);
  EXPECT_NE(error.message.find("cannot make a file in this folder"), std::string::npos)
      << error.message;
}

}  // namespace
}  // namespace tessera::run::offload_test
