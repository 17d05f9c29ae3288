// The name of a run that was given none: equal commands go on with one run, others never meet in
// one folder.
#include "config/run_name.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "config/reader.h"

namespace tessera::config::run_name_test {
namespace {

Override flag_of(const std::string& name, const std::string& value) {
  for (const Flag& f : flags())
    if (f.name == name) return from_flag(f, value);
  ADD_FAILURE() << "no flag " << name;
  return {};
}

// The folder of a command: "--np 4 --set optim.lr=1". `world`: ranks that a launcher started.
std::string folder_of(const std::string& words, const std::string& file = "", int world = 0) {
  std::vector<Override> overrides;
  std::istringstream in(words + " --epochs 10");
  for (std::string name, value; in >> name >> value;)
    overrides.push_back(name == "--set" ? from_set(value) : flag_of(name, value));
  return load_text("", file, overrides, Purpose::other, world).run.out;
}

TEST(RunName, SaysWhatTheCommandLineChanges) {
  EXPECT_EQ(folder_of(""), "runs/vit_tiny_cifar-synthetic-epochs10");
  EXPECT_EQ(folder_of("--model vit_micro --np 4 --zero 2"),
            "runs/vit_micro-synthetic-zero2-np4-epochs10");
  EXPECT_EQ(folder_of("--model vit_micro --np 2 --set parallel.compress=int8"),
            "runs/vit_micro-synthetic-compress-int8-np2-epochs10");
  EXPECT_EQ(folder_of("--set parallel.overlap=false --set data.balanced=true"),
            "runs/vit_tiny_cifar-synthetic-balanced-no_overlap-epochs10");
  EXPECT_EQ(folder_of("--set optim.name=sgd --lr 2e-3"),
            "runs/vit_tiny_cifar-synthetic-optim_name-sgd-lr0.002-epochs10");
  EXPECT_EQ(folder_of("--data synthetic:64x48x1,7"),
            "runs/vit_tiny_cifar-synthetic-64x48x1-7-epochs10");
  EXPECT_EQ(folder_of("--model vit_micro", "recipes/mine.toml"),
            "runs/mine-model_name-vit_micro-epochs10");
}

// As the README has them: each in a folder of its own; what changes no result does not count, nor
// does who started the ranks.
TEST(RunName, TellsConfigurationsApart) {
  const std::vector<std::string> commands = {"--np 4 --zero 2",
                                             "--np 4 --dp 2 --tp 2 --comm local",
                                             "--np 2 --pp 2 --accumulate 4",
                                             "--np 2 --set parallel.compress=int8",
                                             "--np 3 --set parallel.weights=measured",
                                             "--np 3 --set parallel.weights=[2,1,1]",
                                             "--seed 1",
                                             "--data folder:a/photos",
                                             "--data folder:b/photos",
                                             "--data folder:photos",
                                             ""};
  std::set<std::string> folders;
  for (const std::string& command : commands) {
    const std::string folder = folder_of("--model vit_micro " + command);
    EXPECT_TRUE(folders.insert(folder).second) << command << ": " << folder;
    EXPECT_EQ(
        folder,
        folder_of("--model vit_micro --threads 2 --set data.workers=3 --set checkpoint.every=7 " +
                  command));
  }
  EXPECT_EQ(folder_of("--np 4 --zero 2"), folder_of("--np 4 --zero 2", "", 4));
}

TEST(RunName, IsAlwaysANameOfAFolder) {
  const std::string longest = folder_of("--data folder:" + std::string(300, 'a')),
                    other = folder_of("--data folder:" + std::string(301, 'a'));
  EXPECT_EQ(longest.size(), std::string("runs/").size() + 100);
  EXPECT_NE(longest, other);
  for (const std::string data : {"folder:/", "folder:../..", "folder:a/b", "folder:\xc3\xa4"}) {
    const std::string folder = folder_of("--data " + data);
    EXPECT_TRUE(folder.starts_with("runs/vit_tiny_cifar-folder")) << folder;
    EXPECT_EQ(folder.find_first_not_of(
                  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-", 5),
              folder.npos)
        << folder;
  }
  EXPECT_EQ(folder_of("", "dir/...toml"), "runs/..-epochs10");
  EXPECT_EQ(folder_of("--out x/y"), "x/y");
  EXPECT_EQ(folder_of("--set run.name=mine"), "runs/mine");
}

}  // namespace
}  // namespace tessera::config::run_name_test
