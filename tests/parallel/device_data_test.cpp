// Either of the two augments, the loader or the device, and wherever the pictures are, a training
// has the same bits: through the verb, with everything that can be moved, over ranks and
// micro-batches that cut pairs of mixed samples apart.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "compile/pipeline.h"
#include "compile/plans.h"
#include "config/reader.h"
#include "exec/device.h"
#include "files/scratch.h"
#include "files/text.h"
#include "input/dataset.h"
#include "input/resident.h"
#include "parallel/world.h"
#include "session/room.h"
#include "verbs/explain_memory.h"
#include "verbs/verbs.h"

namespace tessera::test::device_data_test {
namespace {

// 21 samples in batches of 8 and one of 5; the last sample of an epoch has no partner.
config::Config augmented(const std::string& family, const std::string& dtype,
                         const std::string& layout) {
  config::Config c = with_layout(tiny(family, dtype), layout);
  c.data.source = "synthetic";
  c.data.train_size = 21;
  c.data.test_size = 5;
  c.data.workers = 0;
  c.data.crop = 2;
  c.data.flip = "random";
  c.data.erase = 0.5;
  c.data.cutout = 3;
  c.data.mixup = 0.4;
  c.data.cutmix = 1;
  c.data.normalize = "cifar10";
  c.batch.micro = c.batch.global / c.batch.accumulate / c.parallel.dp;
  c.run.epochs = 2;
  c.run.steps = 0;
  c.run.trace = 0;
  c.run.np = ranks_of(c);
  return c;
}

struct Trained {
  std::vector<double> loss, grad_norm;
  std::string weights;  // the bytes of their file
  nlohmann::json summary;
};
Trained trained(config::Config c, const std::string& augment_on, const std::string& resident,
                const std::function<void(const std::filesystem::path& run)>& look = {}) {
  const Scratch scratch;
  c.data.augment_on = augment_on;
  c.data.resident = resident;
  c.run.out = (scratch / "run").string();
  c.run.name = "data";
  const run::TrainOptions options{.given = {}, .fresh = true, .quiet = true};
  if (ranks_of(c) == 1)
    EXPECT_EQ(run::train(c, options), 0);
  else
    comm::run_local(ranks_of(c),
                    [&](comm::Comm& world) { EXPECT_EQ(run::train(c, options, &world), 0); });
  Trained out;
  std::ifstream file(scratch / "run" / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json m = nlohmann::json::parse(line);
    if (m["kind"] != "step") continue;
    out.loss.push_back(m["loss"].get<double>());
    out.grad_norm.push_back(m["grad_norm"].get<double>());
  }
  out.weights = files::read_text(scratch / "run" / "weights.safetensors", 1 << 26);
  out.summary = nlohmann::json::parse(files::read_text(scratch / "run" / "summary.json"));
  if (look) look(scratch / "run");
  return out;
}

void expect_same(const Trained& got, const Trained& want, const std::string& what) {
  SCOPED_TRACE(what);
  EXPECT_EQ(want.loss.size(), 6u);
  EXPECT_EQ(got.loss, want.loss);
  EXPECT_EQ(got.grad_norm, want.grad_norm);
  EXPECT_TRUE(got.weights == want.weights) << "the weights have other bits";
}

void expect_same_bits(const std::string& family, const std::string& dtype,
                      const std::string& layout) {
  SCOPED_TRACE(family + " " + dtype + ": " + layout);
  const config::Config c = augmented(family, dtype, layout);
  const Trained loader = trained(c, "loader", "no");
  expect_same(trained(c, "device", "no"), loader, "the device augments");
  expect_same(trained(c, "device", "yes"), loader, "the device holds the pictures");
}

TEST(DeviceData, GivesTheBitsOfTheLoader) {
  expect_same_bits("vit", "f32", "acc3");  // micro-batches of 3, 3 and 2: pairs are cut apart
  expect_same_bits("vit", "bf16", "dp2");
}
TEST(DeviceData, GivesTheBitsOfTheLoaderOverRanks) {
  expect_same_bits("vit", "f64", "dp3 acc2");
  expect_same_bits("vit", "f32", "pp2 acc4 1f1b");
}
// Pictures of another size than the model's stay as they are, and every step resizes its own.
TEST(DeviceData, GivesTheBitsOfTheLoaderWhereItResizes) {
  for (const char* interpolation : {"bilinear", "bicubic"}) {
    config::Config c = augmented("vit", "f32", "dp2");
    c.data.source = "synthetic:7x10x" + std::to_string(c.model.channels) + "," +
                    std::to_string(c.model.classes);
    c.data.interpolation = interpolation;
    expect_same(trained(c, "device", "yes"), trained(c, "loader", "no"), interpolation);
  }
}
// Batch norm has running statistics, and with averaged weights they are measured anew: on
// augmented batches.
TEST(DeviceData, GivesTheBitsOfTheLoaderWhereStatisticsAreMeasured) {
  config::Config c = augmented("resnet", "f32", "acc1");
  c.ema.decay = 0.9;
  const Trained loader = trained(c, "loader", "no");
  expect_same(trained(c, "device", "yes"), loader, "the device holds the pictures");
}

// Samples that are not moved stay where they were.
TEST(DeviceData, MayLeavePartsToTheLoader) {
  config::Config c = augmented("vit", "f32", "acc1");
  c.data.color_jitter = {0.4};
  expect_same(trained(c, "device", "no"), trained(c, "loader", "no"), "colours");
  c.data.mixup = 0;
  c.data.cutmix = 0;
  c.data.erase_value = "random";
  expect_same(trained(c, "device", "no"), trained(c, "loader", "no"), "random values");
}

// Without augmentations the pictures may stay there too: the program normalises them.
TEST(DeviceData, HoldsPicturesThatNobodyChanges) {
  config::Config c = augmented("vit", "f32", "acc1"), plain = c;
  plain.data = {};
  plain.data.source = c.data.source;
  plain.data.train_size = 21;
  plain.data.test_size = 5;
  plain.data.workers = 0;
  expect_same(trained(plain, "loader", "yes"), trained(plain, "loader", "no"), "no augmentation");
}

// Pictures are planned like everything else, and no checkpoint has them.
TEST(DeviceData, IsPlannedAndNotSaved) {
  config::Config c = augmented("vit", "f32", "pp2 acc4 1f1b");
  c.data.augment_on = "device";
  c.data.resident = "yes";
  std::uintmax_t saved = 0;
  const Trained got = trained(c, "device", "yes", [&](const std::filesystem::path& run) {
    for (const auto& file : std::filesystem::recursive_directory_iterator(run / "ckpt"))
      if (file.is_regular_file() && file.path().extension() == ".safetensors")
        saved += files::read_text(file.path(), 1 << 26).find("pictures") != std::string::npos;
  });
  EXPECT_EQ(saved, 0u);
  const plan::Target target = exec::target_of(c.run.device, static_cast<int>(c.run.threads));
  for (int rank = 0; rank < 2; ++rank) {
    const nlohmann::json& peak = got.summary["ranks"][static_cast<std::size_t>(rank)]["peak_bytes"];
    EXPECT_EQ(peak["planned"], peak["measured"]) << "rank " << rank;
    EXPECT_EQ(run::memory_of_run(c, rank, {}, target, {}).bytes,
              peak["measured"].get<std::int64_t>())
        << "rank " << rank << ", as explain says";
  }
  // Only the stage that reads them has them: 21 pictures.
  run::settle_pictures(c);
  EXPECT_EQ(c.data.held, 21);
  const auto bytes_of = [&](int rank) {
    std::int64_t bytes = 0;
    const run::Compiled compiled =
        run::compile(c, run::Goal::train, run::micro_batches_for(c, run::Goal::train, 8), target,
                     {}, run::Weights::live, rank);
    for (const plan::Buffer& b : compiled.plan.persistent)
      if (b.name == "pictures") bytes += b.bytes;
    return bytes;
  };
  EXPECT_GE(bytes_of(0), 21 * c.model.image_h * c.model.image_w * c.model.channels);
  EXPECT_EQ(bytes_of(1), 0);
}

// A run goes on with pictures on the device, whoever augmented before.
TEST(DeviceData, MayChangeWhenARunGoesOn) {
  config::Config c = augmented("vit", "f32", "acc1");
  c.lr.schedule = "constant";  // so that rates do not depend on the end
  c.lr.warmup = {};
  const Trained whole = trained(c, "loader", "no");
  const Scratch scratch;
  c.run.out = (scratch / "run").string();
  c.run.name = "data";
  run::TrainOptions options;
  options.quiet = true;
  config::Config first = c, second = c;
  first.data.augment_on = "loader";
  first.run.epochs = 1;
  ASSERT_EQ(run::train(first, options), 0);
  std::filesystem::remove(scratch / "run" / "summary.json");  // as if it had been stopped
  second.data.augment_on = "device";
  second.data.resident = "yes";
  ASSERT_EQ(run::train(second, options), 0);
  EXPECT_TRUE(files::read_text(scratch / "run" / "weights.safetensors", 1 << 26) == whole.weights);
}

config::Config with(const std::vector<std::string>& settings) {
  std::vector<config::Override> overrides;
  for (const std::string& setting : settings) overrides.push_back(config::from_set(setting));
  return config::load({}, overrides, config::Purpose::other);
}
std::int64_t held_by(config::Config c) {
  const auto train = run::open_data(c, data::Split::train);
  run::settle_resident(c, *train);
  return c.data.held;
}

// More pictures than there is room for are refused before anything is taken, with the way out.
TEST(Resident, WithoutRoomSaysWhatToDo) {
  config::Config c = tiny("vit", "f32");
  c.data.held = 1'000'000'000'000;
  c.data.held_h = c.model.image_h;
  c.data.held_w = c.model.image_w;
  run::Session session(c);
  try {
    run::reserve(session, {{run::Goal::train, 4}}, run::Ranks(nullptr));
    ADD_FAILURE() << "there is no such memory";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::memory);
    EXPECT_NE(std::string(error.what()).find("data.resident=no"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(session.executor().allocated_bytes(), 0);
}

TEST(Resident, FollowsTheDeviceAndTheData) {
  EXPECT_EQ(held_by(with({"data.train_size=40"})), 0);  // a CPU's memory is where they are
  EXPECT_EQ(held_by(with({"data.train_size=40", "data.resident=yes"})), 40);
  config::Config card = with({"data.train_size=40", "data.crop=4", "data.mixup=1"});
  card.run.device = "cuda";
  EXPECT_EQ(held_by(card), 40);
  card.data.fraction = 0.5;
  EXPECT_EQ(held_by(card), 20);
  config::Config other = card;  // of another size: the step resizes
  other.data.source = "synthetic:9x9x3,10";
  EXPECT_EQ(held_by(other), 20);
  card.data.train_size = 800'000;  // 1.2 GB of 32 x 32 x 3
  EXPECT_EQ(held_by(card), 0);
  card.data.train_size = 40;
  for (const auto& change : std::vector<std::function<void(config::Config&)>>{
           [](config::Config& c) { c.data.augment_on = "loader"; },
           [](config::Config& c) { c.data.autoaugment = true; },
           [](config::Config& c) {
             c.data.resized_crop = 0.5;
             c.data.crop = 0;
           },
           [](config::Config& c) {
             c.data.erase = 0.5;
             c.data.erase_value = "random";
           },
           [](config::Config& c) {
             c.data.source = "synthetic:9x9x3,10";
             c.data.resize = "after";
           },
           [](config::Config& c) { c.data.resident = "no"; }}) {
    config::Config c = card;
    change(c);
    EXPECT_EQ(held_by(c), 0);
    if (c.data.resident == "no") continue;
    c.data.resident = "yes";
    EXPECT_THROW(held_by(c), Error);
  }
  EXPECT_EQ(with({"data.resident=true"}).data.resident, "auto");  // as older configurations say
}

}  // namespace
}  // namespace tessera::test::device_data_test
