// Checkpoints of a session: names, bits, what is kept, what a full disk leaves, and what hostile
// folders do.
#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "base/rng.h"
#include "checkpoint/saver.h"
#include "checkpoint/weights_open.h"
#include "files/disk.h"
#include "files/hash.h"
#include "files/scratch.h"
#include "files/text.h"
#include "session/init.h"

namespace tessera::run::checkpoint_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::error_of;
using test::Scratch;

config::Config tiny(const std::string& optimizer = "adamw") {
  config::Config c;
  c.model = models::preset("vit_micro");
  c.model.depth = 1;
  c.model.dim = 16;
  c.model.mlp = 24;
  c.model.heads = 2;
  c.optim.name = optimizer;
  c.batch = {4, 4, 1};
  return c;
}

struct Trained {
  Session session;
  std::int64_t step = 0;
  explicit Trained(const config::Config& c) : session(c) { session.load(initial_weights(3)); }
  void train(int steps) {
    const models::ModelConfig& m = session.config().model;
    for (int i = 0; i < steps; ++i) {
      std::vector<float> images(static_cast<std::size_t>(4 * m.image_h * m.image_w * m.channels));
      ++step;
      for (std::size_t k = 0; k < images.size(); ++k)
        images[k] = static_cast<float>(normal(Key{static_cast<std::uint64_t>(step)}, k));
      const std::vector<std::int32_t> labels = {1, 2, 3, 4};
      ASSERT_TRUE(session.train_step(images, labels, 1e-2, step, 0).ok);
    }
  }
  Progress progress(std::int64_t best = 0) const {
    Progress p;
    p.step = step;
    p.best_step = best;
    p.epoch_loss = 0.1 * static_cast<double>(step);
    p.loss_scale = {{"scale", 1024.0}, {"good", 3}};
    return p;
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
};

void save(const fs::path& run, Trained& t, std::int64_t best = 0, Retention retention = {}) {
  Snapshot snapshot;
  take_snapshot(t.session, t.progress(best), {{"classes", {"x"}}}, snapshot);
  write_checkpoint(run, snapshot, retention);
}

std::vector<std::int64_t> steps_in(const fs::path& run) {
  std::vector<std::int64_t> out;
  for (const CheckpointPath& c : checkpoints_in(run)) out.push_back(c.step);
  return out;
}

config::Config small_resnet() {
  config::Config c = tiny("sgd");
  c.model = models::preset("resnet_micro_cifar");
  c.ema.decay = 0.9;
  return c;
}

TEST(Checkpoint, GoesOnWithTheSameBits) {
  for (const config::Config& config : {tiny("adamw"), tiny("sgd"), small_resnet()}) {
    const Scratch scratch;
    Trained a(config), b(config);
    a.train(3);
    save(scratch.folder(), a);
    std::vector<std::string> notes;
    const auto progress = load_newest_checkpoint(scratch.folder(), b.session, 100, notes);
    ASSERT_TRUE(progress);
    b.step = progress->step;
    EXPECT_EQ(to_json(*progress), to_json(a.progress()));
    EXPECT_EQ(b.state(), a.state());
    a.train(3);
    b.train(3);
    EXPECT_EQ(b.state(), a.state());
  }
}

// A checkpoint knows parameters, not buckets: names and shapes are the model's.
TEST(Checkpoint, TensorsCarryTheNamesOfParameters) {
  const Scratch scratch;
  Trained t(tiny());
  save(scratch.folder(), t);
  const auto checkpoint = open_checkpoint(scratch / "ckpt/step-0");
  const auto params = models::parameters(t.session.config().model);
  EXPECT_EQ(checkpoint->manifest().tensors.size(), 3 * params.size());
  for (const models::Param& p : params)
    for (const char* prefix : {"param.", "adamw.m.", "adamw.v."})
      EXPECT_EQ(checkpoint->at(prefix + p.name).shape, p.shape);
}

// Running statistics are state like any other, and part of the weights that others read.
TEST(Checkpoint, RunningStatisticsAreIn) {
  const Scratch scratch;
  Trained t(small_resnet());
  t.train(2);
  save(scratch.folder(), t);
  const OpenedWeights opened = open_weights(scratch.folder());
  int buffers = 0;
  for (const models::Param& p : models::parameters(opened.model)) {
    buffers += p.buffer &&
               open_checkpoint(scratch / "ckpt/step-2")->at("buffer." + p.name).shape == p.shape;
    EXPECT_EQ(opened.source(p), t.session.parameter(p.name, Weights::average)) << p.name;
  }
  EXPECT_GT(buffers, 4);
}

// --init takes weight files; of a checkpoint, and of a run that has not ended, it says how to make
// one.
TEST(Checkpoint, IsNoWeightFile) {
  const Scratch scratch;
  Trained t(tiny());
  save(scratch.folder(), t);
  for (const fs::path& path : {scratch.folder(), scratch / "ckpt/step-0"}) {
    const Error error = error_of([&] { weight_file(path); });
    EXPECT_EQ(error.kind, ErrorKind::weights);
    EXPECT_NE(error.hint.find("tessera ckpt export " + path.string()), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(weight_file(scratch / "w.safetensors"), scratch / "w.safetensors");
  files::write_atomically(scratch / "weights.safetensors", "");
  EXPECT_EQ(weight_file(scratch.folder()), scratch / "weights.safetensors");
}

// The same state cut over three ranks by hand loads as if it had been written whole.
TEST(Checkpoint, AnotherLayoutLoads) {
  const Scratch scratch;
  Trained a(tiny()), b(tiny());
  a.train(2);
  save(scratch.folder(), a);
  const auto whole = open_checkpoint(scratch / "ckpt/step-2");
  files::Manifest cut;
  cut.state = whole->manifest().state;
  fs::create_directories(scratch / "other/ckpt/step-2");
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<std::vector<std::byte>> bytes;
    std::vector<files::ShardBytes> shards;
    for (const auto& [name, tensor] : whole->manifest().tensors) {
      const std::size_t dim =
          tensor.shape.size() > 1
              ? 1
              : 0;  // the second dim where there is one: slices that are not contiguous
      const ir::Range part = ir::split(tensor.shape[dim], 3, rank);
      files::Extents offset(tensor.shape.size(), 0), extent = tensor.shape;
      offset[dim] = part.begin;
      extent[dim] = part.size;
      bytes.push_back(whole->read(name, offset, extent));
      shards.push_back({name, tensor.dtype, tensor.shape, offset, extent, bytes.back()});
    }
    for (auto& [name, tensor] : files::write_shards(scratch / "other/ckpt/step-2", rank, shards)) {
      auto& into =
          cut.tensors.try_emplace(name, files::GlobalTensor{tensor.dtype, tensor.shape, {}})
              .first->second.shards;
      into.insert(into.end(), tensor.shards.begin(), tensor.shards.end());
    }
  }
  files::write_atomically(scratch / "other/ckpt/step-2/manifest.json", print(cut));
  std::vector<std::string> notes;
  ASSERT_TRUE(load_newest_checkpoint(scratch / "other", b.session, 100, notes));
  EXPECT_EQ(b.state(), a.state());
}

TEST(Checkpoint, TheNewestAndTheBestStay) {
  const Scratch scratch;
  Trained t(tiny());
  for (int i = 1; i <= 6; ++i) {
    t.train(1);
    save(scratch.folder(), t, std::min(i, 2), {2, true});
  }
  EXPECT_EQ(steps_in(scratch.folder()), (std::vector<std::int64_t>{6, 5, 2}));
  t.train(1);
  save(scratch.folder(), t, 7, {2, true});
  EXPECT_EQ(steps_in(scratch.folder()), (std::vector<std::int64_t>{7, 6}));
  t.step = 5;  // what lies ahead is nobody's to remove without being told
  save(scratch.folder(), t, 0, {1, false});
  EXPECT_EQ(steps_in(scratch.folder()), (std::vector<std::int64_t>{7, 6, 5}));
}

TEST(Checkpoint, ADamagedOneIsPassedOverAndNothingButDamageIsAnError) {
  const Scratch scratch;
  Trained t(tiny()), other(tiny("sgd"));
  t.train(1);
  save(scratch.folder(), t, 0, {9, false});
  const auto old = t.state();
  t.train(1);
  save(scratch.folder(), t, 0, {9, false});
  fs::resize_file(scratch / "ckpt/step-2/rank-0.safetensors", 1000);
  std::vector<std::string> notes;
  const auto progress = load_newest_checkpoint(scratch.folder(), t.session, 100, notes);
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->step, 1);
  EXPECT_EQ(t.state(), old);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("step-2 passed over"), std::string::npos) << notes[0];
  EXPECT_NE(std::string(error_of([&] {
                          load_newest_checkpoint(scratch.folder(), other.session, 100, notes);
                        }).what())
                .find("another run"),
            std::string::npos);
  fs::remove(scratch / "ckpt/step-1/manifest.json");
  const Error error =
      error_of([&] { load_newest_checkpoint(scratch.folder(), t.session, 100, notes); });
  EXPECT_EQ(error.kind, ErrorKind::weights);
  EXPECT_NE(error.message.find("none of the 2 checkpoints"), std::string::npos) << error.what();
}

// The key that was changed is named, not the tensor that is missed.
TEST(Checkpoint, WhatNoLongerFitsIsNamed) {
  config::Config frozen = tiny(), averaged = tiny();
  frozen.optim.freeze = "backbone";
  averaged.ema.decay = 0.9;
  const auto refused = [](const config::Config& before, const config::Config& now) {
    const Scratch scratch;
    Trained a(before), b(now);
    save(scratch.folder(), a);
    std::vector<std::string> notes;
    return std::string(
        error_of([&] { load_newest_checkpoint(scratch.folder(), b.session, 100, notes); }).what());
  };
  const auto expect = [](const std::string& got, const std::string& want) {
    EXPECT_NE(got.find(want), got.npos) << got;
  };
  expect(refused(tiny(), frozen), "optim.freeze has changed");
  expect(refused(tiny(), frozen), " is frozen now");
  expect(refused(frozen, tiny()), " is trained now, and was frozen");
  expect(refused(tiny(), averaged), "ema.decay has changed");
}

// Wherever the disk fills up, the error says so, the older checkpoint is whole and nothing else is
// left.
TEST(Checkpoint, AFullDiskLeavesTheOldOneIntact) {
  const Scratch scratch;
  Trained t(tiny());
  t.train(1);
  save(scratch.folder(), t);
  const auto old = t.state();
  t.train(1);
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(scratch / "ckpt/step-1"))
    bytes += entry.file_size();
  for (std::uint64_t limit = 0; limit < bytes; limit += bytes / 9 + 1) {
    const files::DiskFault fault(limit, limit % 2 ? EDQUOT : ENOSPC);
    Saver saver(scratch.folder(), {1, false});
    saver.save(t.session, t.progress(), {}, {});
    const Error error = error_of([&] { saver.wait(); });
    EXPECT_EQ(error.kind, ErrorKind::disk);
    EXPECT_NE(error.message.find("bytes are needed"), std::string::npos) << error.what();
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch / "ckpt"), {}), 1);
  std::vector<std::string> notes;
  ASSERT_TRUE(load_newest_checkpoint(scratch.folder(), t.session, 100, notes));
  EXPECT_EQ(t.state(), old);
}

TEST(Checkpoint, TheWritersErrorComesAtTheNextBoundary) {
  const Scratch scratch;
  Trained t(tiny());
  const files::DiskFault fault(100, ENOSPC);
  Saver saver(scratch.folder(), {});
  saver.save(t.session, t.progress(), {}, {});
  t.train(1);  // goes on meanwhile
  const Error error = error_of([&] {
    for (int i = 0; i < 100000; ++i) saver.poll();
    saver.wait();
  });
  EXPECT_EQ(error.kind, ErrorKind::disk);
  EXPECT_NO_THROW(saver.poll());  // told once
}

// Mutated files of a checkpoint: loading succeeds (whatever still has its hash) or is
// Error(weights); the session never sees half of one.
TEST(Hostile, MutatedCheckpointsNeverCrash) {
  const Scratch scratch;
  Trained t(tiny());
  save(scratch.folder(), t);
  const fs::path folder = scratch / "ckpt/step-0";
  const std::map<std::string, std::string> good = {
      {"manifest.json", files::read_text(folder / "manifest.json")},
      {"rank-0.safetensors", files::read_text(folder / "rank-0.safetensors")}};
  const auto state = t.state();
  const auto put = [&](const std::string& name, const std::string& text) {
    fs::remove(
        folder /
        name);  // some file systems flush a file that is cut and written anew, which takes long
    std::ofstream(folder / name, std::ios::binary) << text;
  };
  const char* wanted = std::getenv("TESSERA_FUZZ_ITERATIONS");
  const long iterations = wanted && std::atol(wanted) > 0 ? std::atol(wanted) : 1500;
  long refused = 0;
  for (long i = 0; i < iterations; ++i) {
    const Key key = Key{13}.with("checkpoint fuzz").with(static_cast<std::uint64_t>(i));
    std::uint64_t draws = 0;
    const auto pick = [&](std::size_t n) {
      return static_cast<std::size_t>(random_bits(key, draws++) % n);
    };
    const std::string name = pick(2) ? "manifest.json" : "rank-0.safetensors";
    std::string mutant = good.at(name);
    for (std::size_t n = 1 + pick(3); n > 0 && !mutant.empty(); --n) {
      const std::size_t at =
          pick(3) ? pick(mutant.size()) : pick(std::min<std::size_t>(mutant.size(), 4000));
      const std::size_t how = pick(4);
      if (how == 0) mutant[at] = static_cast<char>(mutant[at] ^ (1 << pick(8)));
      if (how == 1) mutant.resize(at);
      if (how == 2) mutant.erase(at, 1 + pick(40));
      if (how == 3) mutant.insert(at, std::string(1 + pick(8), static_cast<char>(pick(256))));
    }
    // A text that still is JSON gets a fitting hash half of the time, so that mutations reach what
    // lies behind it.
    if (json document = json::parse(mutant, nullptr, false); document.is_object() && pick(2)) {
      document.erase("hash");
      document["hash"] = files::hash_text(files::xxh3(
          std::string_view(document.dump(-1, ' ', false, json::error_handler_t::replace))));
      mutant = document.dump(-1, ' ', false, json::error_handler_t::replace);
    }
    put(name, mutant);
    std::vector<std::string> notes;
    try {
      load_newest_checkpoint(scratch.folder(), t.session, 100, notes);
    } catch (const Error& error) {
      ++refused;
      ASSERT_EQ(error.kind, ErrorKind::weights) << error.what();
      ASSERT_NE(std::string(error.what()).find(scratch.folder().string()), std::string::npos)
          << error.what();
    }
    ASSERT_EQ(t.state(), state);
    put(name, good.at(name));
  }
  EXPECT_GT(refused, iterations * 3 / 4);
}

}  // namespace
}  // namespace tessera::run::checkpoint_test
