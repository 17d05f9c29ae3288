// Every committed recipe is sound: it loads for training, where its data would be.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/check.h"
#include "config/flags.h"
#include "config/reader.h"
#include "files/scratch.h"

namespace tessera::config::recipes_test {
namespace {

namespace fs = std::filesystem;

TEST(Recipes, AreAllSound) {
  const test::Scratch scratch;
  for (const char* name : {"birds", "cats"}) fs::create_directories((scratch / "photos") / name);
  int count = 0;
  for (const auto& entry : fs::directory_iterator(TESSERA_SOURCE_DIR "/recipes")) {
    if (entry.path().extension() != ".toml") continue;
    ++count;
    std::vector<Override> overrides;
    if (entry.path().stem() == "folder_fine_tune")
      overrides.push_back(from_set("data.source=folder:" + (scratch / "photos").string()));
    try {
      const Config config = load(entry.path().string(), overrides, Purpose::train);
      EXPECT_GT(config.run.epochs, 0) << entry.path();
      EXPECT_TRUE(models::problems(config.model).empty()) << entry.path();
    } catch (const Error& error) {
      ADD_FAILURE() << entry.path() << "\n" << error.what();
    }
  }
  EXPECT_GE(count, 16);
}

}  // namespace
}  // namespace tessera::config::recipes_test
