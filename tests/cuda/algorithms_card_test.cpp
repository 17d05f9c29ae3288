// Algorithms of cuBLASLt and cuDNN on a card: a run keeps what it took, takes it again when it goes
// on, and says so where it cannot.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cuda/card.h"
#include "files/scratch.h"
#include "files/text.h"
#include "train/algorithms.h"
#include "verbs/verbs.h"

namespace tessera::test::algorithms_card_test {
namespace {

namespace fs = std::filesystem;

class OnCardAlgorithms : public OnCard {
 protected:
  fs::path folder() const { return scratch_ / "run"; }
  fs::path file() const { return folder() / run::algorithms_file; }
  void TearDown() override { RecordProperty("cases", seen_); }

  config::Config config(const std::string& model, int epochs) const {
    config::Config c = preset_on("cuda", model, "bf16", 8);
    c.data.source = "synthetic:32x32x3,10";
    c.data.train_size = 24;
    c.data.test_size = 8;
    c.data.workers = 1;
    c.run.epochs = epochs;
    c.run.out = folder().string();
    c.run.name = "algorithms";
    return c;
  }
  static void train(const config::Config& c, comm::Comm* world = nullptr) {
    run::TrainOptions options;
    options.quiet = true;
    EXPECT_EQ(run::train(c, options, world), 0);
  }
  // The only table of the file.
  exec::Choices table() const {
    const run::Algorithms read = run::read_algorithms(files::read_text(file()));
    EXPECT_EQ(read.problem, "");
    EXPECT_EQ(read.tables.size(), 1u);
    return read.tables.empty() ? exec::Choices() : read.tables[0];
  }
  // The run said and kept this of it.
  std::string said() const { return files::read_text(folder() / "log.txt"); }
  // A run that goes on for another epoch with a file that says `change`.
  void go_on(const std::string& model, const std::function<void(std::string&)>& change) {
    std::string text = files::read_text(file());
    change(text);
    files::write_atomically(file(), text);
    fs::remove(folder() / "summary.json");
    train(config(model, 2));
  }

  Scratch scratch_;
  int seen_ = 0;
};

int with(const exec::Choices& table, const std::string& key, const std::string& algorithm) {
  return static_cast<int>(
      std::count_if(table.rows().begin(), table.rows().end(), [&](const auto& row) {
        return row.first.starts_with(key) && row.second.algorithm.starts_with(algorithm);
      }));
}

TEST_F(OnCardAlgorithms, AreKeptInTheRunFolder) {
  train(config("resnet_micro_cifar", 1));
  const exec::Choices kept = table();
  EXPECT_GT(with(kept, "product ", ""), 0);
  const bool dnn = kept.made_with().back().second != "not used";
  EXPECT_EQ(with(kept, "conv ", "engine ") > 0, dnn);
  EXPECT_EQ(with(kept, "conv_input_grad ", "engine ") > 0, dnn);
  EXPECT_EQ(with(kept, "conv_filter_grad ", "engine ") > 0, dnn);
  for (const auto& [name, value] : kept.made_with()) EXPECT_NE(value, "") << name;
  // Going on with what is there, every row is taken by the libraries.
  const std::string before = files::read_text(file());
  go_on("resnet_micro_cifar", [](std::string&) {});
  EXPECT_EQ(files::read_text(file()), before);
  EXPECT_EQ(said().find("bits"), std::string::npos) << said();
  seen_ = static_cast<int>(kept.rows().size());
}

// A table that says "no algorithm of the library" is followed: the kernel of our own takes over.
TEST_F(OnCardAlgorithms, ARecordedChoiceIsFollowed) {
  train(config("vit_micro", 1));
  std::string key;
  go_on("vit_micro", [&](std::string& text) {
    std::vector<exec::Choices> tables = run::read_algorithms(text).tables;
    key = tables.at(0).rows().begin()->first;
    EXPECT_NE(tables[0].find(key)->algorithm, "");
    tables[0].add(key, {});
    text = run::to_text(tables);
  });
  ASSERT_TRUE(table().find(key));
  EXPECT_EQ(table().find(key)->algorithm, "");
  EXPECT_EQ(said().find("bits"), std::string::npos) << said();
  seen_ = 1;
}

TEST_F(OnCardAlgorithms, WhatTheLibraryDoesNotTakeIsChosenAnew) {
  train(config("vit_micro", 1));
  const exec::Choices before = table();
  const std::string key = before.rows().begin()->first;
  for (const std::string& algorithm : {std::string("00ff"), std::string(128, 'f')}) {
    go_on("vit_micro", [&](std::string& text) {
      std::vector<exec::Choices> tables = run::read_algorithms(text).tables;
      tables.at(0).add(key, {algorithm, 0});
      text = run::to_text(tables);
    });
    EXPECT_EQ(table().rows(), before.rows());
    EXPECT_NE(said().find("1 of the recorded algorithms"), std::string::npos) << said();
    ++seen_;
  }
}

TEST_F(OnCardAlgorithms, AnotherVersionSaysThatBitsWillDiffer) {
  train(config("vit_micro", 1));
  const std::string version = table().made_with().at(2).second;
  go_on("vit_micro",
        [&](std::string& text) { text.replace(text.find(version), version.size(), "1.2.3"); });
  EXPECT_NE(said().find("bits will differ"), std::string::npos) << said();
  EXPECT_EQ(run::read_algorithms(files::read_text(file())).tables.size(), 2u);
  seen_ = 1;
}

TEST_F(OnCardAlgorithms, RanksOfOneCardHaveOneTable) {
  config::Config c = config("vit_micro", 1);
  c.parallel.pp = 2;
  c.run.np = 2;
  c.batch = {8, 4, 2};
  comm::run_local(2, [&](comm::Comm& world) { train(c, &world); });
  EXPECT_GT(table().rows().size(), 0u);
  seen_ = 1;
}

}  // namespace
}  // namespace tessera::test::algorithms_card_test
