// Training with compressed gradients: every rank ends with the same weights, the loss falls about
// as far as it does without compression, a skipped step leaves what was kept as it was, and a
// checkpoint takes it along.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "checkpoint/saver.h"
#include "comm/choose.h"
#include "files/scratch.h"
#include "parallel/world.h"
#include "plan/traffic.h"
#include "session/init.h"

namespace tessera::test::compress_test {
namespace {

using Buffers = std::map<std::string, std::vector<std::byte>>;

Buffers buffers_of(run::Session& session) {
  Buffers out;
  for (const plan::Buffer& b :
       compiled_step(session, session.config().batch.global).plan.persistent) {
    out[b.name].resize(static_cast<std::size_t>(b.bytes));
    session.executor().read_persistent(b.name, 0, out[b.name]);
  }
  return out;
}

constexpr const char* kinds[] = {"none",     "fp16",   "bf16",      "int8",
                                 "topk=0.1", "onebit", "powersgd=2"};

class Kinds : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Kinds, testing::ValuesIn(kinds));

TEST_P(Kinds, AllRanksHaveTheSameWeights) {
  for (const char* layout : {"dp2", "dp3", "dp2 zero1", "dp3 zero2 acc2", "dp2 tp2",
                             "dp2 tp2 megatron zero1", "dp2 sp2 zero2"}) {
    for (const char* dtype : {"f32", "f64"}) {
      const std::string kind = GetParam();
      if (kind.starts_with("powersgd") && (std::string(layout).ends_with("megatron zero1") ||
                                           std::string(layout).ends_with("sp2 zero2")))
        continue;  // refused: there are no whole matrices
      Training t{with_layout(tiny("vit", dtype), layout + std::string(" compress=") + GetParam())};
      if (t.config.parallel.zero == 1) {
        t.config.optim.name = "sgd";
        t.config.optim.momentum = 0.9;
        t.config.optim.lr = 0.02;
      }
      std::mutex mutex;
      std::map<int, Buffers> first;  // by place on tp
      int compared = 0, residuals = 0;
      t.at_end = [&](run::Session& session, const Trace&) {
        const std::lock_guard lock(mutex);
        const int place = session.rank() % static_cast<int>(t.config.parallel.tp);
        Buffers mine = buffers_of(session);
        for (const auto& [name, bytes] : mine) residuals += name.starts_with("residual.");
        const auto [found, fresh] = first.try_emplace(place, std::move(mine));
        if (fresh) return;
        for (const auto& [name, bytes] : buffers_of(session))
          if (name.starts_with("weights.")) {
            EXPECT_EQ(bytes, found->second.at(name)) << name << " of rank " << session.rank();
            ++compared;
          }
      };
      SCOPED_TRACE(std::string(dtype) + " " + layout);
      train(t);
      EXPECT_GT(compared, 0);
      EXPECT_EQ(residuals > 0, kind != "none" && kind != "fp16" && kind != "bf16");
    }
  }
}

// The same images again and again: what a tiny model can learn by heart.
std::vector<double> learn(config::Config c, int steps) {
  std::vector<double> losses;
  comm::run_local(ranks_of(c), [&](comm::Comm& world) {
    run::Session session(c, {}, &world);
    session.load(run::initial_weights(3));
    for (int step = 1; step <= steps; ++step) {
      const Samples s = samples_of(c.model, step % 4, c.batch.global);
      const run::StepResult r = session.train_step(s.images, s.labels, c.optim.lr, step, 0);
      if (world.rank() == 0) losses.push_back(r.loss);
    }
  });
  return losses;
}

TEST_P(Kinds, Learns) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    config::Config c = tiny("vit", "f32");
    c.optim.name = optimizer;
    c.optim.momentum = 0.9;
    c.optim.weight_decay = 0;
    c.optim.lr = c.optim.name == "sgd" ? 0.05 : 0.003;
    const auto last = [](const std::vector<double>& losses) {
      return (losses.end()[-1] + losses.end()[-2] + losses.end()[-3] + losses.end()[-4]) / 4;
    };
    static std::map<std::string, std::vector<double>> known;  // the same for every kind
    std::vector<double>& plain = known[optimizer];
    if (plain.empty()) plain = learn(with_layout(c, "dp2"), 80);
    const std::vector<double> got =
        learn(with_layout(c, std::string("dp2 compress=") + GetParam()), 80);
    RecordProperty(std::string(optimizer) + "_plain", std::to_string(last(plain)));
    RecordProperty(std::string(optimizer) + "_compressed", std::to_string(last(got)));
    EXPECT_LT(last(plain), 0.25 * plain[0]) << optimizer;
    EXPECT_LT(last(got), last(plain) + 0.25 * plain[0])
        << optimizer << ": " << last(got) << " against " << last(plain);
    if (std::string(GetParam()) == "none") {
      EXPECT_EQ(got, plain);
    }
  }
}

// The loss on the way is the same on every device. Of a transformer the gradients of its key
// biases are nothing but rounding, whose sign onebit would send: it trains a ResNet.
TEST_P(Kinds, HasTheTraceOfTheCpu) {
  const char* device = std::getenv("TESSERA_TEST_DEVICE");
  if (!device) GTEST_SKIP() << "no card here: TESSERA_TEST_DEVICE names no other device";
  const std::string kind = GetParam();
  const char* model = kind == "onebit" ? "resnet" : "vit";
  for (const char* layout : {"dp2", "dp2 zero1"}) {
    SCOPED_TRACE(layout);
    Training t{with_layout(tiny(model, "f64"), layout + (" compress=" + kind))};
    const Trace got = train(t);
    t.config.run.device = "cpu";
    const Trace want = train(t);
    EXPECT_LE(difference(got.loss, want.loss), 1e-9);
    EXPECT_LE(difference(got.grad_norm, want.grad_norm), 1e-9);
  }
}

TEST_P(Kinds, ASkippedStepChangesNothing) {
  const config::Config c =
      with_layout(tiny("vit", "f32"), std::string("dp2 zero1 compress=") + GetParam());
  comm::run_local(2, [&](comm::Comm& world) {
    run::Session session(c, {}, &world);
    session.load(run::initial_weights(3));
    Samples s = samples_of(c.model, 1, 8);
    EXPECT_TRUE(session.train_step(s.images, s.labels, 1e-2, 1, 0).ok);
    const Buffers before = buffers_of(session);
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      s.images[5] = bad;  // of the first rank's share
      EXPECT_FALSE(session.train_step(s.images, s.labels, 1e-2, 2, 0).ok);
      EXPECT_EQ(buffers_of(session), before);
    }
    s = samples_of(c.model, 2, 8);
    EXPECT_TRUE(session.train_step(s.images, s.labels, 1e-2, 2, 0).ok);
    EXPECT_NE(buffers_of(session), before);
  });
}

// Gradients that f32 holds and fp16 does not. Nothing is clipped, so that updates would begin
// before all gradients have arrived.
TEST(Compressed, WhatOverflowsOnTheWayIsSkipped) {
  const run::ParamSource drawn = run::initial_weights(3);
  const run::ParamSource steep = [&](const models::Param& p) {
    std::vector<double> values = drawn(p);
    for (double& v : values) v *= p.name == "heads.head.weight" ? 1e7 : 1;
    return values;
  };
  for (const char* layout : {"dp2", "dp2 zero1", "dp2 zero2"})
    for (const bool on_ring : {false, true})
      for (const char* kind : {"fp16", "bf16"}) {
        SCOPED_TRACE(std::string(layout) + (on_ring ? " wire=" : " compress=") + kind);
        config::Config c = with_layout(tiny("vit", "f32"), layout);
        c.optim.clip = 0;
        (on_ring ? c.parallel.wire : c.parallel.compress) = kind;
        comm::run_local(2, [&](comm::Comm& threads) {
          comm::Choice choice;
          choice.algorithm = on_ring ? comm::Algorithm::ring : comm::Algorithm::mpi;
          choice.across.ring.wire = comm::wire_named(c.parallel.wire);
          choice.across.ring.wire_from = 1024;  // all buckets, no number
          const std::unique_ptr<comm::Comm> world =
              comm::choose(threads.split(0, threads.rank()), choice);
          run::Session session(c, {}, world.get());
          session.load(steep);
          const Samples s = samples_of(c.model, 1, 8);
          compiled_step(session, 8);
          const Buffers before = buffers_of(session);
          const bool fits = std::string(kind) == "bf16";
          EXPECT_EQ(session.train_step(s.images, s.labels, 1e-2, 1, 0).ok, fits);
          EXPECT_EQ(buffers_of(session) == before, !fits);
        });
      }
}

// Trains steps first..last, from the newest checkpoint if first > 1, saves, and gives rank 0's
// losses, notes and buffers.
struct Part {
  std::vector<double> losses;
  std::vector<std::string> notes;
  std::map<int, Buffers> buffers;  // by rank
};
Part part_of(const config::Config& c, const std::filesystem::path& run, int first, int last) {
  Part out;
  std::mutex mutex;
  comm::run_local(ranks_of(c), [&](comm::Comm& world) {
    run::Session session(c, {}, &world);
    compiled_step(session, c.batch.global);
    std::vector<std::string> notes;
    if (first > 1)
      ASSERT_TRUE(run::load_newest_checkpoint(run, session, 1000, notes).has_value());
    else
      session.load(run::initial_weights(3));
    std::vector<double> losses;
    for (int step = first; step <= last; ++step) {
      const Samples s = samples_of(c.model, step, c.batch.global);
      losses.push_back(session.train_step(s.images, s.labels, 1e-2, step, step * 100).loss);
    }
    run::Progress progress;
    progress.step = last;
    run::Saver saver(run, {2, true}, run::Ranks(&world));
    saver.save(session, progress, nlohmann::json::object(), {});
    saver.wait();
    const std::lock_guard lock(mutex);
    out.buffers[world.rank()] = buffers_of(session);
    if (world.rank() == 0) {
      out.losses = losses;
      out.notes = notes;
    }
  });
  return out;
}

TEST_P(Kinds, ResumesBitForBit) {
  for (const char* layout : {"dp2", "dp3 zero1", "dp2 tp2 zero2 acc2", "dp2 sp2"}) {
    SCOPED_TRACE(layout);
    const Scratch scratch;
    const config::Config c =
        with_layout(tiny("vit", "f32"), layout + std::string(" compress=") + GetParam());
    const Part whole = part_of(c, scratch / "whole", 1, 6);
    part_of(c, scratch / "run", 1, 3);
    const Part rest = part_of(c, scratch / "run", 4, 6);
    EXPECT_TRUE(rest.notes.empty()) << rest.notes[0];
    EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 3, whole.losses.end()));
    for (const auto& [rank, buffers] : whole.buffers)
      for (const auto& [name, bytes] : buffers)
        if (name.starts_with("residual.") || name.starts_with("powersgd.")) {
          EXPECT_EQ(bytes, rest.buffers.at(rank).at(name)) << name;
        }
  }
}

TEST(Compressed, AnotherLayoutStartsOverAndSaysSo) {
  const Scratch scratch;
  const config::Config plain = tiny("vit", "f32");
  part_of(with_layout(plain, "dp2 compress=int8"), scratch / "run", 1, 3);
  const Part other = part_of(with_layout(plain, "dp3 zero1 compress=int8"), scratch / "run", 4, 6);
  ASSERT_EQ(other.notes.size(), 1u);
  EXPECT_NE(other.notes[0].find(
                "starts at zero: the checkpoint was written by another layout (dp, zero)"),
            std::string::npos)
      << other.notes[0];
  for (const double loss : other.losses) EXPECT_TRUE(std::isfinite(loss));
  const Part none = part_of(with_layout(plain, "dp3 zero1"), scratch / "run", 7, 8);
  ASSERT_EQ(none.notes.size(), 1u);
  EXPECT_NE(none.notes[0].find("not compressed any more"), std::string::npos) << none.notes[0];
  const Part again =
      part_of(with_layout(plain, "dp3 zero1 compress=onebit"), scratch / "run", 9, 9);
  ASSERT_EQ(again.notes.size(), 1u);
  EXPECT_NE(again.notes[0].find("written without compression"), std::string::npos)
      << again.notes[0];
  // The rest that onebit did not send topk sends: a residual is a residual.
  EXPECT_TRUE(part_of(with_layout(plain, "dp3 zero1 compress=topk=0.1"), scratch / "run", 10, 11)
                  .notes.empty());
}

// The reason is the one that counts, not another one that would fit.
TEST(Compressed, ANoteSaysWhyResidualsAreNotThere) {
  const config::Config plain = tiny("vit", "f32");
  const auto note = [&](const std::string& before, const std::string& after, double layer_decay = 1,
                        double bucket_mb = 4) {
    const Scratch scratch;
    part_of(with_layout(plain, before), scratch / "run", 1, 2);
    config::Config c = with_layout(plain, after);
    c.optim.layer_decay = layer_decay;
    c.parallel.bucket_mb = bucket_mb;
    const Part part = part_of(c, scratch / "run", 3, 3);
    return part.notes.empty() ? std::string() : part.notes[0];
  };
  const auto expect = [](const std::string& got, const std::string& want) {
    EXPECT_NE(got.find(want), got.npos) << got;
  };
  expect(note("dp2 compress=int8", "dp2 compress=fp16"),
         "parallel.compress = \"fp16\" keeps nothing: what the checkpoint had not sent");
  expect(note("dp2 compress=fp16", "dp2 compress=int8"),
         "written with parallel.compress = \"fp16\", which keeps nothing");
  expect(note("dp2 compress=onebit", "dp2 compress=int8", 0.5),
         "with other buckets: optim.layer_decay");
  expect(note("dp2 compress=powersgd=8", "dp2 compress=int8"),
         "with another kind of compression, powersgd=8");
  expect(note("dp2 compress=int8", "dp2 compress=int8", 1, 0.004), "by another layout (bucket_mb)");
  EXPECT_EQ(note("dp2 zero2 compress=int8", "dp2 zero2 compress=int8", 1, 0.004),
            "");  // it cuts by blocks of layers
}

// The bytes of gradients, against 4 a number.
TEST(Compressed, TakesFewerBytes) {
  const auto bytes = [](const std::string& layout) {
    const config::Config c = with_layout(tiny("vit", "f32"), layout);
    const plan::Plan plan = run::compile(c, run::Goal::train, {8}, plan::Target{}).plan;
    double n = 0;
    for (const plan::CommRow& row : plan::communication(plan))
      if (row.what == "gradients") n += static_cast<double>(row.bytes);
    return n;
  };
  // The payload of an all_reduce is the bucket once; of ours it is the parts that leave, and this
  // rank's sums: 1 + 1/2 as much for two ranks.
  const double all = bytes("dp2"), cut = bytes("dp2 zero1");
  EXPECT_EQ(all, cut);
  EXPECT_NEAR(bytes("dp2 compress=fp16") / all, 1.5 / 2, 0.001);
  EXPECT_NEAR(bytes("dp2 compress=int8") / all, 1.5 / 4, 0.003);
  EXPECT_NEAR(bytes("dp2 compress=onebit") / all, 1.5 / 32, 0.003);
  EXPECT_NEAR(bytes("dp2 compress=topk=0.01") / all, 2 * 0.01, 0.001);
  EXPECT_NEAR(bytes("dp2 zero1 compress=bf16") / cut, 1.0 / 2, 0.001);
  EXPECT_NEAR(bytes("dp2 zero1 compress=int8") / cut, 1.0 / 4, 0.003);
  EXPECT_LT(bytes("dp2 compress=powersgd=1") / all, 0.3);
}

}  // namespace
}  // namespace tessera::test::compress_test
