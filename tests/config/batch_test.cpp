// The three batch numbers: every small case against a cut that is made sample by sample, and
// DeepSpeed's rule against its own equation; and the learning rate that follows the batch.
#include "config/batch.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "config/print.h"
#include "config/reader.h"

namespace tessera::config::batch_test {
namespace {

using Maybe = std::optional<std::int64_t>;

// Parts of `n` in `parts` pieces that differ by at most one, larger ones first.
std::vector<std::int64_t> cut(std::int64_t n, std::int64_t parts) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(parts), 0);
  for (std::int64_t i = 0; i < n; ++i) ++out[static_cast<std::size_t>(i % parts)];
  return out;
}

std::int64_t largest_by_hand(std::int64_t global, std::int64_t accumulate, std::int64_t ranks) {
  std::int64_t most = 0;
  for (const std::int64_t micro : cut(global, accumulate))
    for (const std::int64_t part : cut(micro, ranks)) most = std::max(most, part);
  return most;
}

TEST(Batch, LargestMicroIsWhatCuttingTwiceGives) {
  for (std::int64_t global = 1; global <= 60; ++global)
    for (std::int64_t accumulate = 1; accumulate <= global; ++accumulate)
      for (std::int64_t ranks = 1; ranks <= 9; ++ranks)
        ASSERT_EQ(largest_micro(global, accumulate, ranks),
                  largest_by_hand(global, accumulate, ranks))
            << global << " " << accumulate << " " << ranks;
}

TEST(Batch, EverySmallCase) {
  for (std::int64_t ranks = 1; ranks <= 5; ++ranks)
    for (std::int64_t g = 0; g <= 26; ++g)   // 0: not given
      for (std::int64_t m = 0; m <= 9; ++m)  // likewise
        for (std::int64_t a = 0; a <= 9; ++a) {
          const auto maybe = [](std::int64_t v) { return v == 0 ? Maybe() : Maybe(v); };
          const BatchSolution s = solve_batch({maybe(g), maybe(m), maybe(a)}, ranks);
          const std::string at = std::to_string(g) + " " + std::to_string(m) + " " +
                                 std::to_string(a) + " on " + std::to_string(ranks);
          const bool says_size = g != 0 || m == 0 || a != 0;
          const std::int64_t size = g != 0 ? g : m != 0 && a != 0 ? m * a * ranks : 128;
          if (!says_size || a > size ||
              (g != 0 && m != 0 && a != 0 && largest_by_hand(g, a, ranks) != m)) {
            ASSERT_TRUE(s.problem) << at;
            ASSERT_FALSE(s.problem->message.empty() || s.problem->advice.empty() ||
                         s.problem->keys.empty())
                << at;
            continue;
          }
          ASSERT_FALSE(s.problem) << at << ": " << s.problem->message;
          const Batch& b = s.batch;
          ASSERT_EQ(b.global, size) << at;
          ASSERT_TRUE(a == 0 || b.accumulate == a) << at;
          ASSERT_TRUE(a != 0 || m != 0 || b.accumulate == 1) << at;
          if (a == 0 && m != 0) {  // as few micro-batches as parts of at most m allow
            ASSERT_EQ(b.accumulate, (size + m * ranks - 1) / (m * ranks)) << at;
            ASSERT_LE(b.micro, m) << at;
            ASSERT_EQ(s.note.empty(), b.micro == m) << at;
          }
          ASSERT_EQ(b.micro, largest_by_hand(b.global, b.accumulate, ranks)) << at;
          // The printed text reads back as itself.
          const BatchSolution again = solve_batch({b.global, b.micro, b.accumulate}, ranks);
          ASSERT_FALSE(again.problem) << at;
          ASSERT_EQ(again.batch, b) << at;
        }
}

TEST(Batch, NothingGivenIsTheDefaultOnAnyNumberOfRanks) {
  EXPECT_EQ(solve_batch({}, 1).batch, (Batch{128, 128, 1}));
  EXPECT_EQ(solve_batch({}, 4).batch, (Batch{128, 32, 1}));
  EXPECT_EQ(solve_batch({}, 3).batch, (Batch{128, 43, 1}));
  EXPECT_EQ(solve_batch({3, {}, {}}, 8).batch, (Batch{3, 1, 1}));  // five ranks have no sample
}

TEST(Batch, RefusalsSayTheNumbers) {
  const auto says = [](const BatchGiven& given, std::int64_t ranks) {
    const BatchSolution s = solve_batch(given, ranks);
    return s.problem ? s.problem->message + "; " + s.problem->advice : "(accepted)";
  };
  EXPECT_EQ(says({64, 16, 4}, 2),
            "batch.micro x batch.accumulate x dp = 16 x 4 x 2 = 128 but batch.global = 64; choose "
            "micro = 8, accumulate = 2 or global = "
            "128, or leave one of the three out");
  EXPECT_EQ(says({10, 6, 1}, 1),
            "batch.micro x batch.accumulate = 6 x 1 = 6 but batch.global = 10; choose micro = 10 "
            "or global = 6, or leave one of the three "
            "out");
  EXPECT_EQ(says({{}, 6, {}}, 2),
            "batch.micro = 6 alone does not say how large an update is; give batch.global or "
            "batch.accumulate too");
  EXPECT_EQ(says({{}, {}, 6}, 2), "(accepted)");
  EXPECT_EQ(solve_batch({{}, {}, 6}, 2).batch,
            (Batch{128, 11, 6}));  // the default batch, cut into six
  EXPECT_EQ(says({2, {}, 3}, 1),
            "batch.accumulate = 3 is more than batch.global = 2; every micro-batch needs a sample");
  EXPECT_EQ(says({1000, 1, {}}, 2),
            "batch.micro = 1 cuts batch.global = 1000 into 500 micro-batches; at most 256 make an "
            "update; choose a micro-batch of 2 or "
            "more");
  EXPECT_EQ(says({{}, most_samples, most_accumulate}, 65536),
            "batch.micro x batch.accumulate x dp = 16777216 x 256 x 65536 = 281474976710656 is out "
            "of range; at most 16777216 samples make "
            "an update");
}

// DeepSpeed's own steps, written down again: floor divisions, then the equation.
TEST(DeepSpeedBatch, EverySmallCase) {
  for (std::int64_t w = 1; w <= 5; ++w)
    for (std::int64_t t = 0; t <= 36; ++t)
      for (std::int64_t m = 0; m <= 9; ++m)
        for (std::int64_t g = 0; g <= 7; ++g) {
          const auto maybe = [](std::int64_t v) { return v == 0 ? Maybe() : Maybe(v); };
          const BatchSolution s = solve_deepspeed_batch({maybe(t), maybe(m), maybe(g)}, w);
          const std::string at = std::to_string(t) + " " + std::to_string(m) + " " +
                                 std::to_string(g) + " on " + std::to_string(w);
          std::int64_t T = t, M = m, G = g;
          if (t && m && !g) G = t / m / w;
          if (t && !m && g) M = t / w / g;
          if (!t && m && g) T = m * g * w;
          if (t && !m && !g) {
            G = 1;
            M = t / w;
          }
          if (!t && m && !g) {
            G = 1;
            T = m * w;
          }
          const bool sound = (t || m) && T > 0 && M > 0 && G > 0 && T == M * G * w;
          ASSERT_EQ(!s.problem, sound) << at;
          ASSERT_TRUE(!sound || s.batch == (Batch{T, M, G})) << at;
          if (!sound && (t || m)) {
            const std::string equation = std::to_string(T) + " != " + std::to_string(M) + " x " +
                                         std::to_string(G) + " x " + std::to_string(w);
            ASSERT_NE(s.problem->message.find(equation), std::string::npos)
                << at << ": " << s.problem->message;
          }
          if (sound) {  // what DeepSpeed accepts is the same batch for us
            const BatchSolution ours = solve_batch({T, M, G}, w);
            ASSERT_FALSE(ours.problem) << at;
            ASSERT_EQ(ours.batch, s.batch) << at;
          }
        }
}

TEST(DeepSpeedBatch, AdviceIsSound) {
  for (std::int64_t w = 1; w <= 8; ++w)
    for (std::int64_t t = 1; t <= 70; ++t)
      for (std::int64_t m = 0; m <= 9; ++m)
        for (std::int64_t g = 0; g <= 5; ++g) {
          const std::vector<Batch> near = divisible_batches({t, m, g}, w);
          ASSERT_FALSE(near.empty());
          ASSERT_LE(near.size(), 4u);
          for (const Batch& b : near) {
            ASSERT_EQ(b.global, b.micro * b.accumulate * w);
            ASSERT_FALSE(solve_deepspeed_batch({b.global, b.micro, b.accumulate}, w).problem);
          }
        }
}

TEST(DeepSpeedBatch, Words) {
  const auto says = [](const BatchGiven& given, std::int64_t ranks) {
    const BatchSolution s = solve_deepspeed_batch(given, ranks);
    return s.problem ? s.problem->message + "; " + s.problem->advice : "(accepted)";
  };
  EXPECT_EQ(says({32, {}, 1}, 3),
            "train_batch_size = 32 is not train_micro_batch_size_per_gpu x "
            "gradient_accumulation_steps x dp: 32 != 10 x 1 x 3 = 30; choose "
            "30 = 10 x 1 x 3 or 33 = 11 x 1 x 3; or dp = 2 or 4 for this batch");
  EXPECT_EQ(says({32, 16, 1}, 1),
            "train_batch_size = 32 is not train_micro_batch_size_per_gpu x "
            "gradient_accumulation_steps x dp: 32 != 16 x 1 x 1 = 16; choose "
            "32 = 16 x 2 x 1, 32 = 32 x 1 x 1 or 16 = 16 x 1 x 1; or dp = 2 for this batch");
  EXPECT_NE(
      says({{}, {}, 4}, 2).find("neither train_batch_size nor train_micro_batch_size_per_gpu"),
      std::string::npos);
  EXPECT_NE(says({{}, most_samples, 2}, 2).find("out of range"), std::string::npos);
  EXPECT_NE(says({4096, 1, {}}, 2).find("at most 256 make an update"), std::string::npos);
}

TEST(PeakRate, FollowsTheBatch) {
  const auto read = [](const std::string& lr, const std::string& rest = "",
                       Purpose purpose = Purpose::other) {
    return load_all_text("[optim]\nlr = 0.001\n[batch]\nglobal = 1024\n" + rest + "[lr]\n" + lr,
                         "t.toml", {}, purpose);
  };
  EXPECT_EQ(peak_rate(read("").config), 0.001);
  EXPECT_DOUBLE_EQ(peak_rate(read("scale = \"linear\"\n").config), 0.004);
  EXPECT_DOUBLE_EQ(peak_rate(read("scale = \"sqrt\"\n").config), 0.002);
  EXPECT_DOUBLE_EQ(peak_rate(read("scale = \"linear\"\nscale_from = 4096\n").config), 0.00025);
  EXPECT_DOUBLE_EQ(peak_rate(read("scale = \"sqrt\"\nscale_from = 64\n").config), 0.004);
  EXPECT_EQ(peak_rate(read("scale_from = 64\n").config), 0.001);
  // Over dp ranks and micro-batches it is the batch of the whole update that counts.
  EXPECT_DOUBLE_EQ(
      peak_rate(read("scale = \"linear\"\n", "accumulate = 4\n[parallel]\ndp = 2\n").config),
      0.004);
}

TEST(PeakRate, IsSaidAndReadsBack) {
  const std::string text = "[batch]\nglobal = 1024\n[lr]\nscale = \"sqrt\"\nscale_from = 64\n";
  const Loaded loaded = load_all_text(text, "t.toml", {}, Purpose::other);
  const std::string said = "the peak learning rate is 0.004: optim.lr 0.001 x sqrt(1024 / 64)";
  ASSERT_EQ(loaded.notes.size(), 1u);
  EXPECT_EQ(loaded.notes[0], said);
  EXPECT_NE(to_toml(loaded.config).find("# " + said + "\n"), std::string::npos);
  EXPECT_EQ(load_text(to_toml(loaded.config), "t.toml", {}, Purpose::other), loaded.config)
      << "optim.lr is as it was given";
  EXPECT_TRUE(load_all_text(text, "t.toml", {}, Purpose::inference).notes.empty());
  EXPECT_EQ(to_toml(load_text("", "t.toml", {}, Purpose::other)).find("# the peak"),
            std::string::npos);
  EXPECT_THROW(load_text("[lr]\nscale = \"cube\"\n", "t.toml", {}, Purpose::other), Error);
  EXPECT_THROW(load_text("[lr]\nscale_from = 0\n", "t.toml", {}, Purpose::other), Error);
}

}  // namespace
}  // namespace tessera::config::batch_test
