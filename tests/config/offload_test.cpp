// The keys of offload: what a DeepSpeed file says maps to them, what they accept, and what changes
// nothing.
#include <gtest/gtest.h>

#include "config/reader.h"
#include "config/run_name.h"

namespace tessera::config::offload_test {
namespace {

Loaded read(const std::string& json, int world = 1, const std::vector<std::string>& sets = {}) {
  Inputs inputs{"", "t.toml", json, "ds.json", {}, Purpose::other, world};
  for (const std::string& set : sets) inputs.overrides.push_back(from_set(set));
  return load_inputs(inputs);
}
std::string notes(const Loaded& loaded) { return join(loaded.notes, "\n"); }
void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), message.npos) << message << "\nlacks: " << part;
}
Effective row(const Loaded& loaded, std::string_view deepspeed) {
  for (const Effective& e : loaded.deepspeed)
    if (e.deepspeed == deepspeed) return e;
  ADD_FAILURE() << "no row " << deepspeed;
  return {};
}

// State goes to the host or into a file, and so do the weights of stage 3.
TEST(OffloadKeys, ComeFromADeepSpeedFile) {
  const auto with = [](const std::string& inside) {
    return read(R"({"train_batch_size": 4, "zero_optimization": {"stage": 1, )" + inside + "}}", 2);
  };
  Loaded l = with(R"("offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme",
                     "pin_memory": true, "buffer_count": 4})");
  EXPECT_EQ(l.config.parallel.offload_optimizer, "file");
  EXPECT_EQ(l.config.parallel.offload_folder, "/local_nvme");
  EXPECT_EQ(row(l, "zero_optimization.offload_optimizer.device").source, "deepspeed");
  EXPECT_EQ(row(l, "zero_optimization.offload_optimizer.nvme_path").key, "parallel.offload_folder");
  l = with(R"("offload_optimizer": {"device": "cpu", "nvme_path": "/local_nvme"})");
  EXPECT_EQ(l.config.parallel.offload_optimizer, "host");
  EXPECT_EQ(l.config.parallel.offload_folder, "");
  l = with(R"("offload_optimizer": {"device": "none"}, "offload_param": {"device": "none"})");
  EXPECT_EQ(l.config.parallel.offload_optimizer, "none");
  EXPECT_EQ(notes(l), "");
  EXPECT_EQ(with(R"("cpu_offload": true)").config.parallel.offload_optimizer, "host");
  EXPECT_EQ(with(R"("cpu_offload": false)").config.parallel.offload_optimizer, "none");
  l = with(R"("offload_param": {"device": "cpu"})");
  EXPECT_EQ(l.config.parallel.offload_params, "none");
  expect_says(notes(l),
              "zero_optimization.offload_param.device = \"cpu\" is not supported and is "
              "ignored: it is for the weights of stage 3");
  const auto third = [](const std::string& inside) {
    return read(R"({"train_batch_size": 4, "zero_optimization": {"stage": 3, )" + inside + "}}", 2);
  };
  l = third(R"("offload_param": {"device": "cpu", "pin_memory": true})");
  EXPECT_EQ(l.config.parallel.offload_params, "host");
  EXPECT_EQ(l.config.parallel.offload_optimizer, "none");
  EXPECT_EQ(row(l, "zero_optimization.offload_param.device").key, "parallel.offload_params");
  l = third(R"("offload_param": {"device": "nvme", "nvme_path": "/local_nvme"})");
  EXPECT_EQ(l.config.parallel.offload_params, "file");
  EXPECT_EQ(l.config.parallel.offload_folder, "/local_nvme");
  EXPECT_EQ(notes(l), "");
  l = third(R"("offload_optimizer": {"device": "nvme", "nvme_path": "/a"},
               "offload_param": {"device": "nvme", "nvme_path": "/b"})");
  EXPECT_EQ(l.config.parallel.offload_folder, "/a");
  expect_says(notes(l), "offload_param.nvme_path = \"/b\" is ignored: all files of offload are in");
  l = with(R"("offload_optimizer": {"device": "moon"})");
  EXPECT_EQ(l.config.parallel.offload_optimizer, "none");
  expect_says(notes(l), "offload_optimizer.device = \"moon\" is not supported and is ignored");
}

TEST(OffloadKeys, ThatChangeNothingAreNoted) {
  const Loaded folder = read(R"({"train_batch_size": 4})", 1, {"parallel.offload_folder=x"});
  expect_says(notes(folder),
              "parallel.offload_folder changes nothing: it is for state that rests "
              "in a file, and parallel.offload_optimizer = \"none\"");
  const Loaded host = read(R"({"train_batch_size": 4})", 1, {"parallel.offload_optimizer=host"});
  expect_says(notes(host), "saves nothing with run.device = \"cpu\"");
  const Loaded file = read(R"({"train_batch_size": 4})", 1,
                           {"parallel.offload_optimizer=file", "parallel.offload_folder=x"});
  EXPECT_EQ(notes(file), "");
  const Loaded params =
      read(R"({"train_batch_size": 4})", 1,
           {"parallel.offload_params=file", "parallel.offload_folder=x", "parallel.zero=3"});
  EXPECT_EQ(notes(params), "");  // ZeRO 3 of one rank says where its weights rest
}

TEST(OffloadKeys, AreRefusedWithTheChoices) {
  try {
    read(R"({"train_batch_size": 4})", 1,
         {"parallel.offload_optimizer=nvme", "parallel.offload_mb=0"});
    ADD_FAILURE() << "it was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2);
    expect_says(e.what(), "parallel.offload_optimizer = \"nvme\"");
    expect_says(e.what(), "none, host or file");
    expect_says(e.what(), "parallel.offload_mb = 0");
  }
  try {
    read(R"({"train_batch_size": 4})", 1, {"parallel.offload_params=host", "parallel.zero=2"});
    ADD_FAILURE() << "it was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2);
    expect_says(e.what(), "parallel.offload_params = \"host\" is for the weights that ZeRO 3");
  }
}

// A run may go on with another value, in the same folder.
TEST(OffloadKeys, ChangeNoResults) {
  for (const char* key : {"offload_optimizer", "offload_params", "offload_folder", "offload_mb"})
    EXPECT_FALSE(changes_results(std::string("parallel.") + key)) << key;
}

}  // namespace
}  // namespace tessera::config::offload_test
