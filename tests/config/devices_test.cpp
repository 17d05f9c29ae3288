// A device for each rank: how it is written, and what is refused or worth a note.
#include "config/devices.h"

#include <gtest/gtest.h>

#include "config/print.h"
#include "config/reader.h"

namespace tessera::config::devices_test {
namespace {

using Sets = std::vector<std::string>;

Loaded launch(int world, const Sets& sets, const std::string& toml = "") {
  std::vector<Override> overrides;
  for (const std::string& set : sets) overrides.push_back(from_set(set));
  return load_all_text(toml, "t.toml", overrides, Purpose::other, world);
}

std::string refusal(int world, const Sets& sets) {
  try {
    launch(world, sets);
    return "(accepted)";
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2);
    return e.what();
  }
}
bool has(const std::string& text, const std::string& words) {
  return text.find(words) != text.npos;
}

TEST(Devices, OneForAllOrOneForEach) {
  const Config one = launch(3, {"run.device=cuda"}).config;
  EXPECT_EQ(device_of(one, 2), "cuda");
  EXPECT_TRUE(all_on(one, "cuda") && !mixed(one) && !any_on(one, "cpu"));
  EXPECT_EQ(in_short(one), "cuda");

  const Config each = launch(3, {"run.device=cuda,cpu,cpu"}).config;
  EXPECT_EQ(device_of(each, 0), "cuda");
  EXPECT_EQ(device_of(each, 1), "cpu");
  EXPECT_EQ(device_of(each, 2), "cpu");
  EXPECT_TRUE(mixed(each) && any_on(each, "cuda") && any_on(each, "cpu"));
  EXPECT_FALSE(all_on(each, "cuda"));
  // It comes back from a file as it was.
  const Config again = launch(3, {}, to_toml(each)).config;
  EXPECT_EQ(again.run.device, "cuda,cpu,cpu");

  const Config same = launch(2, {"run.device=cuda,cuda"}).config;
  EXPECT_TRUE(all_on(same, "cuda") && !mixed(same));
  EXPECT_EQ(in_short(same), "cuda");
}

TEST(Devices, WhatIsNoListOfThemIsRefused) {
  for (const char* bad :
       {"gpu", "cuda,gpu", "cuda,", ",cpu", "cuda,,cpu", "cuda, cpu", "cuda;cpu"}) {
    const std::string said = refusal(2, {std::string("run.device=") + bad});
    EXPECT_TRUE(has(said, "is not known") && has(said, "cpu or cuda")) << bad << ": " << said;
  }
  const std::string count = refusal(3, {"run.device=cuda,cpu"});
  EXPECT_TRUE(has(count, "names 2 devices for 3 ranks")) << count;
  const std::string alone = refusal(1, {"run.device=cuda,cpu"});
  EXPECT_TRUE(has(alone, "names 2 devices for 1 rank")) << alone;
}

TEST(Devices, CardsAndCoresTogetherTalkThroughTheHost) {
  const std::string said = refusal(2, {"run.device=cuda,cpu", "parallel.comm=nccl"});
  EXPECT_TRUE(has(said, "has ranks without one") && has(said, "through the host")) << said;
  EXPECT_EQ(refusal(2, {"run.device=cuda,cuda", "parallel.comm=nccl"}), "(accepted)");
  for (const char* comm : {"auto", "local", "mpi"})
    EXPECT_EQ(refusal(2, {"run.device=cuda,cpu", std::string("parallel.comm=") + comm}),
              "(accepted)");
}

TEST(Devices, EqualSharesAndDriftAreWorthANote) {
  const auto notes = [](const Sets& sets) {
    std::string all;
    for (const std::string& note : launch(2, sets).notes) all += note + "\n";
    return all;
  };
  const std::string both = notes({"run.device=cuda,cpu"});
  EXPECT_TRUE(has(both, "parallel.weights = measured")) << both;
  EXPECT_TRUE(has(both, "parallel.zero = 1")) << both;
  EXPECT_FALSE(has(notes({"run.device=cuda,cpu", "parallel.zero=1"}), "parallel.zero"));
  EXPECT_FALSE(has(notes({"run.device=cuda,cpu", "parallel.weights=measured"}), "measured"));
  EXPECT_FALSE(has(notes({"run.device=cpu,cpu"}), "different devices"));
}

// A liberty that is taken for speed says what it costs, or that nothing gains.
TEST(Devices, LibertiesAreForCards) {
  const auto notes = [](const Sets& sets) {
    const Loaded loaded = launch(1, sets);
    return join(loaded.notes, "\n");
  };
  EXPECT_FALSE(launch(1, {}).config.precision.tf32);
  EXPECT_TRUE(launch(1, {}).config.run.deterministic);

  EXPECT_EQ(notes({"run.device=cuda", "precision.tf32=true"}), "");
  EXPECT_TRUE(has(notes({"precision.tf32=true"}),
                  "precision.tf32 = true changes nothing: it is for cards"));
  EXPECT_TRUE(has(notes({"run.device=cuda", "precision.tf32=true", "precision.dtype=bf16"}),
                  "precision.tf32 = true changes nothing: it is for f32"));

  EXPECT_TRUE(launch(1, {}).config.precision.winograd);
  const std::string plain = "precision.winograd=false", resnet = "model.name=resnet50";
  EXPECT_EQ(notes({plain, resnet}), "");
  EXPECT_TRUE(has(notes({plain}), "precision.winograd = false changes nothing: it is for f32"));
  EXPECT_TRUE(
      has(notes({plain, resnet, "precision.dtype=bf16"}), "changes nothing: it is for f32"));
  EXPECT_TRUE(has(notes({plain, resnet, "run.device=cuda"}), "changes nothing: it is for the CPU"));
  EXPECT_EQ(launch(1, {}).config.run.threading, "auto");
  EXPECT_EQ(notes({"run.threading=rows", "run.threads=2"}), "");
  EXPECT_TRUE(has(notes({"run.threading=rows", "run.device=cuda"}), "nothing: it is for cores"));
  EXPECT_TRUE(has(notes({"run.threading=heads", "run.threads=1"}), "nothing: run.threads = 1"));
  EXPECT_TRUE(has(refusal(1, {"run.threading=columns"}), "auto, heads, rows or products"));

  const std::string any_order = "run.deterministic=false";
  EXPECT_TRUE(has(notes({any_order}), "no kernel of the CPU would be faster"));
  EXPECT_TRUE(has(notes({any_order, "run.device=cuda"}), "changes nothing: only convolutions"));
  const std::string said = notes({any_order, "run.device=cuda", "model.name=resnet50"});
  EXPECT_TRUE(has(said, "may differ in their last bits") && !has(said, "changes nothing")) << said;
}

}  // namespace
}  // namespace tessera::config::devices_test
