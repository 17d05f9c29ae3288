// The table of the fastest algorithms on disk, without a card.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "exec/cuda/products/fastest.h"

namespace tessera::exec::cuda::fastest_test {
namespace {

namespace fs = std::filesystem;

class CudaFastest : public testing::Test {
 protected:
  CudaFastest() { fs::create_directories(folder_); }
  ~CudaFastest() override { fs::remove_all(folder_); }

  fs::path folder_ = fs::temp_directory_path() / ("tessera_fastest_" + std::to_string(::getpid()));
  fs::path file_ = folder_ / "deep" / "products.txt";
  int measured_ = 0;

  // A new process finds this.
  std::string ask(const std::string& key, const std::string& would_choose) {
    Fastest table(file_);
    const Choice* found = table.find(key, [&] {
      ++measured_;
      return Choice{would_choose, 64};
    });
    return found ? found->algorithm : "nothing";
  }
};

// An engine of cuDNN is several words.
TEST_F(CudaFastest, AnAlgorithmMayHaveBlanks) {
  EXPECT_EQ(ask("conv bf16 images 1", "engine 12 knobs 3=1 7=-2"), "engine 12 knobs 3=1 7=-2");
  EXPECT_EQ(ask("conv bf16 images 1", "other"), "engine 12 knobs 3=1 7=-2");
  EXPECT_EQ(measured_, 1);
}

TEST_F(CudaFastest, MeasuresOnceAndKeepsIt) {
  EXPECT_EQ(ask("product bf16 1,2,3", "aa"), "aa");
  EXPECT_EQ(ask("product bf16 1,2,3", "bb"), "aa");
  EXPECT_EQ(ask("product bf16 4,5,6", "cc"), "cc");
  EXPECT_EQ(ask("product bf16 1,2,3", "dd"), "aa");
  EXPECT_EQ(measured_, 2);
}

TEST_F(CudaFastest, PassesOverWhatIsNoLine) {
  fs::create_directories(file_.parent_path());
  std::ofstream(file_) << "\n-1 aa one\n99999999999999999 aa one\nx aa one\n8 aa\n"
                       << std::string(5000, 'z') << "\n12 bb two\n16 cc on";  // cut off
  EXPECT_EQ(ask("one", "11"), "11");
  EXPECT_EQ(ask("two", "22"), "bb");
  EXPECT_EQ(ask("one", "33"), "11") << "it stands on a line of its own";
  EXPECT_EQ(measured_, 1);
}

TEST_F(CudaFastest, MeasuresNothingThatItCannotKeep) {
  std::ofstream(folder_ / "a file");
  file_ = folder_ / "a file" / "products.txt";
  EXPECT_EQ(ask("one", "11"), "nothing");
  file_.clear();
  EXPECT_EQ(ask("one", "11"), "nothing");
  EXPECT_EQ(measured_, 0);
}

TEST_F(CudaFastest, KeepsNothingWhereNothingServes) {
  EXPECT_EQ(ask("one", ""), "nothing");
  EXPECT_EQ(ask("one", "11"), "11");
}

}  // namespace
}  // namespace tessera::exec::cuda::fastest_test
