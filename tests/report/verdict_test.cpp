// Fits and sentences: what is said follows from the numbers, and nothing that they do not hold is
// said.
#include "page/verdict.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "page/layers.h"
#include "page/scaling.h"
#include "report/sample.h"

namespace tessera::report::test {
namespace sentences {

std::string all_of(const std::vector<std::string>& sentences) {
  std::string out;
  for (const std::string& s : sentences) out += s + "\n";
  return out;
}
std::string said(const Part& part) { return all_of(verdict(part)); }
bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(Amdahl, FindsTheSerialShare) {
  for (const double s : {0.0, 0.01, 0.05, 0.25, 1.0}) {
    std::vector<std::pair<double, double>> points;
    for (const double n : {1, 2, 4, 8, 32}) points.emplace_back(n, amdahl_speedup(s, n));
    EXPECT_NEAR(amdahl(points), s, 1e-12);
  }
  EXPECT_EQ(amdahl({{2, 2.5}, {4, 5.0}}), 0);  // faster than ideal: no less than none
  EXPECT_EQ(amdahl({{2, 0.5}, {4, 0.3}}), 1);
  EXPECT_TRUE(std::isnan(amdahl({})));
  EXPECT_TRUE(std::isnan(amdahl({{1, 1.0}})));
  // Noise of 1% on both sides moves it by less than that.
  std::vector<std::pair<double, double>> noisy;
  for (const double n : {2, 4, 8, 16})
    noisy.emplace_back(n, amdahl_speedup(0.05, n) * (n == 4 ? 1.01 : 0.99));
  EXPECT_NEAR(amdahl(noisy), 0.05, 0.01);
}

TEST(Verdict, GoodScaling) {
  const Part part = scaling_part(
      PartKind::strong, {1, 2, 4, 8}, [](int n) { return n == 1 ? 1.0 : 0.91; }, 3, 0.005, 0.04);
  const std::string text = said(part);
  EXPECT_TRUE(has(text, "scales to 8 ranks at 9")) << text;
  EXPECT_TRUE(has(text, "% efficiency, a speed-up of 7.3x") && has(text, "n = 3")) << text;
  EXPECT_TRUE(
      has(text, "communication is exposed from 4 ranks on (8.0% of the step, 12% at 8 ranks)"))
      << text;
  EXPECT_TRUE(has(text, "the slowest rank costs")) << text;
  EXPECT_TRUE(has(text, "Amdahl's law, fitted to 3 points")) << text;
}

TEST(Verdict, BadScaling) {
  const std::string slower = said(scaling_part(
      PartKind::strong, {1, 2, 4}, [](int n) { return n == 1 ? 1.0 : 0.9 / n; }, 2));
  EXPECT_TRUE(has(slower, "more ranks bring nothing")) << slower;
  EXPECT_FALSE(has(slower, "Amdahl")) << slower;
  const std::string poor = said(scaling_part(
      PartKind::strong, {1, 2, 4}, [](int n) { return n == 1 ? 1.0 : 0.6; }, 2));
  EXPECT_TRUE(has(poor, "scales poorly: 4 ranks reach 6")) << poor;
  const std::string part_way = said(scaling_part(
      PartKind::strong, {1, 2, 4, 8}, [](int n) { return n == 8 ? 0.4 : 0.95; }, 2));
  EXPECT_TRUE(has(part_way, "scales to 4 ranks at ")) << part_way;
  EXPECT_TRUE(has(part_way, "; 8 ranks reach 4")) << part_way;
}

TEST(Verdict, SharedCoresAreNamed) {
  Part part = scaling_part(
      PartKind::strong, {1, 2, 4}, [](int n) { return n <= 2 ? 0.95 : 0.48; }, 2);
  for (Point& p : part.points)
    for (Repeat& r : p.repeats) r.record->env["cores"] = 2;
  const std::string text = said(part);
  EXPECT_TRUE(has(
      text,
      "from 4 ranks on, ranks share cores: this machine allows a speed-up of 2.0x at most there"))
      << text;
}

TEST(Verdict, WeakScaling) {
  const std::string text = said(scaling_part(
      PartKind::weak, {1, 2, 4}, [](int n) { return 1.0 - 0.02 * (n - 1); }, 3, 0.001));
  EXPECT_TRUE(has(text, "4 ranks reach 94% efficiency (n = 3)")) << text;
  EXPECT_FALSE(has(text, "Amdahl")) << text;
}

TEST(Verdict, OneNumberOfRanksIsNoScaling) {
  EXPECT_TRUE(has(said(scaling_part(
                      PartKind::strong, {2}, [](int) { return 1.0; }, 3)),
                  "no scaling to speak of"));
}

TEST(Verdict, NoiseIsNoDifference) {
  Part quiet = technique_part(3, 0.001), noisy = technique_part(3, 0.2), once = technique_part(1);
  EXPECT_TRUE(has(said(quiet), "the shortest time for an epoch is data parallel")) << said(quiet);
  EXPECT_FALSE(has(said(quiet), "a tie")) << said(quiet);
  EXPECT_TRUE(has(said(noisy), "a tie within the spread")) << said(noisy);
  EXPECT_TRUE(has(said(once), "measured once, so chance is not ruled out")) << said(once);
  EXPECT_TRUE(has(said(quiet), "the least memory on a rank is ZeRO 3 with 5.2 MB")) << said(quiet);
  EXPECT_TRUE(has(said(quiet), "pipeline, 1F1B sends the fewest bytes: 66 kB")) << said(quiet);
  EXPECT_TRUE(has(said(quiet), "the final loss differs from that of one rank")) << said(quiet);
}

TEST(Verdict, AccuracyOverSeeds) {
  const std::string apart = said(accuracy_part(3, 0.003)), near = said(accuracy_part(3, 0.05)),
                    one = said(accuracy_part(1, 0));
  EXPECT_TRUE(has(apart, "best is adamw with ")) << apart;
  EXPECT_TRUE(has(apart, "beyond the spread, against adamw: sgd (−2.0 points)")) << apart;
  EXPECT_TRUE(has(near, "a tie within the spread")) << near;
  EXPECT_TRUE(has(near, "within the spread, against adamw: sgd")) << near;
  EXPECT_TRUE(has(one, "with one seed")) << one;
}

TEST(Verdict, Batch) {
  const std::string text = said(batch_part(3));
  EXPECT_TRUE(has(text, "2 ranks: most images per second at batch 256")) << text;
  EXPECT_TRUE(has(text, "takes 27% of the step at batch 16 and 3.6% at batch 256")) << text;
  EXPECT_TRUE(has(text, "1 rank: best accuracy at batch 64")) << text;
}

TEST(Verdict, FailuresAndOneRepeatAreSaid) {
  const std::string text = all_of(verdict(sample_study(1)));
  EXPECT_TRUE(has(text, "Every point was measured once")) << text;
  EXPECT_TRUE(has(
      text, "1 of 33 runs failed: Strong scaling, batch 64, 8 ranks (repeat 2: rank 5 was lost"))
      << text;
  EXPECT_TRUE(has(text, "Of 3 claims, 1 holds here, 1 does not, 1 cannot be tested here.")) << text;
  EXPECT_EQ(all_of(verdict(Study{})), "Nothing has been run yet.\n");
  Study failing;
  failing.parts.push_back(technique_part(2));
  for (Point& p : failing.parts[0].points)
    for (Repeat& r : p.repeats) r = failed(r.number, "no memory");
  const std::string all = all_of(verdict(failing));
  EXPECT_TRUE(has(all, "All 10 runs failed")) << all;
  EXPECT_TRUE(has(all, "and 5 more")) << all;
  EXPECT_FALSE(has(all, "fastest") || has(all, "shortest")) << all;
  for (Point& p : failing.parts[0].points)
    for (Repeat& r : p.repeats) r.outcome = Outcome::waiting;
  EXPECT_TRUE(has(all_of(verdict(failing)), "No run of 10 is finished yet"));
}

TEST(Verdict, ClaimsWithoutANumberDoNotWait) {
  Study study = sample_study(1);
  for (const char* said : {"not run", "no number", "no number"})
    study.claims.push_back({"p", "s", "", "–", said, ""});
  const std::string text = all_of(verdict(study));
  EXPECT_TRUE(has(text,
                  "Of 6 claims, 1 holds here, 1 does not, 1 cannot be tested here, 1 waits for its "
                  "runs, 2 have no number."))
      << text;
}

// Ranks that share cores say nothing of a serial share, and a law that a point is beyond sets no
// limit.
TEST(Amdahl, IsFittedToRanksWithCoresOfTheirOwn) {
  Part part = scaling_part(
      PartKind::strong, {1, 2, 4, 8},
      [](int n) { return n <= 4 ? amdahl_speedup(0.05, n) / n : 0.1; }, 1, 0);
  for (Point& p : part.points)
    for (Repeat& r : p.repeats) {
      r.record->env["cores"] = 4;
      r.record->hosts = 1;
    }
  const Scaling s = scaling_of(part).front();
  EXPECT_EQ(s.fitted, 2);
  EXPECT_NEAR(s.serial, 0.05, 1e-9);
  const Part beyond = scaling_part(
      PartKind::strong, {1, 2, 4, 8}, [](int n) { return n == 8   ? 0.9
                                                         : n == 1 ? 1.0
                                                                  : 0.3; }, 1,
      0);
  const std::string text = said(beyond);
  EXPECT_TRUE(has(text, "Amdahl's law, fitted to 3 points")) << text;
  EXPECT_FALSE(has(text, "no number of ranks would pass")) << text;
}

TEST(Verdict, ScalingNamesSlowComputingAndWhatIsUndecided) {
  const std::string slow = said(scaling_part(
      PartKind::strong, {1, 2}, [](int n) { return n == 1 ? 1.0 : 0.6; }, 2, 0, 0));
  EXPECT_TRUE(has(slow, "each rank computes 62% longer than its share of the work")) << slow;
  const std::string well = said(scaling_part(
      PartKind::strong, {1, 2}, [](int) { return 1.0; }, 2, 0, 0));
  EXPECT_FALSE(has(well, "longer than its share")) << well;
  const std::string open = said(scaling_part(
      PartKind::strong, {1, 2}, [](int n) { return 1.0 / n; }, 3, 0.05));
  EXPECT_TRUE(has(open, "a tie within the spread")) << open;
  EXPECT_FALSE(has(well, "a tie")) << well;
}

TEST(Verdict, ScalingAlongAnotherAxis) {
  Part part = scaling_part(
      PartKind::strong, {1, 2, 4}, [](int n) { return n == 1 ? 1.0 : 0.9 / n; }, 2);
  part.axis = "run.threads";
  for (Point& p : part.points) p.axes.back().first = "run.threads";
  const std::string text = said(part);
  EXPECT_TRUE(has(text, "more threads bring nothing: an epoch on 4 threads")) << text;
  EXPECT_FALSE(has(text, "ranks")) << text;
}

// Losses are compared with those of the same seed and the same axes.
TEST(Verdict, LossesArePaired) {
  Part part = technique_part(3, 0.001);
  part.points.resize(2);
  for (int r = 0; r < 3; ++r)
    for (int i = 0; i < 2; ++i)
      part.points[i].repeats[r].record->loss = 1 + 0.25 * r + 0.0625 * i;  // exact in binary
  part.points[1].repeats.erase(part.points[1].repeats.begin());
  EXPECT_TRUE(has(said(part), "by at most 0.063 (data parallel; seeds alone move it by 0.50)"))
      << said(part);
  const Part before = part;
  for (Point& p : part.points) p.axes = {{"batch.global", "64"}};
  for (Point p : before.points) {
    p.axes = {{"batch.global", "256"}};
    for (Repeat& r : p.repeats) r.record->loss += 7;
    part.points.push_back(p);
  }
  EXPECT_TRUE(has(said(part), "by at most 0.063 (data parallel, batch 64")) << said(part);
}

// The least work would lead everywhere: techniques are compared where their axes are equal.
TEST(Verdict, TechniquesBesideAGrid) {
  const std::string two = said(technique_grid({16, 32}, 2));
  for (const char* sentence :
       {": image 16: the shortest time for an epoch is data parallel with 540 ms, n = 2; ZeRO 3 "
        "follows with 580 ms, n = 2 (7.4% more).",
        ": image 32: the shortest time for an epoch is data parallel with 1.1 s, n = 2; ZeRO 3 "
        "follows with 1.2 s, n = 2 (7.4% more).",
        ": image 32: the least memory on a rank is ZeRO 3 with 10 MB, n = 2;",
        ": image 32: of those with several ranks pipeline, 1F1B sends the fewest bytes: 130 kB"})
    EXPECT_TRUE(has(two, sentence)) << sentence << "\n" << two;
  Part many = technique_grid({16, 32, 64, 128, 256}, 2);
  for (Point& p : many.points)
    for (Repeat& r : p.repeats) {
      if (p.technique == "tensor parallel" && p.axes[0].second.size() == 3)
        r.record->epoch_seconds /= 2;
      if (p.technique == "data parallel" && p.axes[0].second == "16")
        r.record->epoch_seconds = r.number == 0 ? 0.5 : 0.62;
    }
  const std::string text = said(many);
  EXPECT_TRUE(has(text,
                  "the shortest time for an epoch is data parallel at 3 of 5 settings of the grid, "
                  "tensor parallel at 2;"))
      << text;
  EXPECT_TRUE(has(text, "; at 1 the spread does not tell it from the next.")) << text;
  EXPECT_TRUE(has(text, "the least memory on a rank is ZeRO 3 at 5 of 5 settings of the grid."))
      << text;
  EXPECT_TRUE(
      has(text, "the fewest bytes come from pipeline, 1F1B at 5 of 5 settings of the grid."))
      << text;
  EXPECT_FALSE(has(text, "follows")) << text;
}

// A speed does not tell this: steps that wait now and then, and that all steps were warm-up.
TEST(Verdict, SpeedsThatHideSomethingAreNamed) {
  Part part = technique_part(1);
  EXPECT_FALSE(has(said(part), "the mean step") || has(said(part), "warm-up")) << said(part);
  const double ratios[] = {1.2, 1.5, 1.6, 1.55, 1.3};
  for (int i = 0; i < 5; ++i) {
    RunRecord& r = *part.points[i].repeats[0].record;
    r.step_ms.mean = ratios[i] * r.step_ms.median;
    r.steps = i == 1 || i == 3 ? 2 : 3;
  }
  const std::string text = said(part);
  EXPECT_TRUE(has(text,
                  "the mean step takes 1.6 times the median with tensor parallel, 1.6 times with "
                  "ZeRO 3, 1.5 times with "))
      << text;
  EXPECT_TRUE(has(text,
                  "data parallel and 1 more: some steps take much longer than most, which images "
                  "per second do not show."))
      << text;
  EXPECT_TRUE(has(
      text,
      "with data parallel and ZeRO 3 a run has no more steps than the warm-up, so its speed is"))
      << text;
}

TEST(Verdict, AllThatShareTheBestAreNamed) {
  Part part = technique_part(1);
  for (Point& p : part.points) {
    p.repeats[0].record->measured = 5000000;
    p.repeats[0].record->comm_bytes = 1000;
  }
  EXPECT_TRUE(has(said(part),
                  "the least memory on a rank is shared by one rank, data parallel, tensor "
                  "parallel, ZeRO 3 and 1 more (5.0 MB)."))
      << said(part);
  EXPECT_TRUE(has(
      said(part),
      "data parallel, tensor parallel, ZeRO 3 and pipeline, 1F1B send the fewest bytes: 1.0 kB"))
      << said(part);
  // A number that every run would have again is not put down to chance; what is not measured is
  // planned.
  part.points[3].repeats[0].record->measured = 4000000;
  const std::string once = said(part);
  EXPECT_TRUE(has(once,
                  "the least memory on a rank is ZeRO 3 with 4.0 MB; one rank follows with 5.0 "
                  "MB (25% more)."))
      << once;
  for (Point& p : part.points) p.repeats[0].record->measured = 0;
  EXPECT_TRUE(has(said(part), "the least planned memory on a rank is ZeRO 3 with 5.2 MB"))
      << said(part);
}

// The mean is said, so the mean decides.
TEST(Verdict, BestAccuracyIsByTheMean) {
  Part part = accuracy_part(3, 0);
  const double tops[2][3] = {{0.50, 0.61, 0.62},
                             {0.58, 0.60, 0.64}};  // medians 0.61 and 0.60, means 0.577 and 0.607
  part.points.resize(2);
  for (int i = 0; i < 2; ++i)
    for (int r = 0; r < 3; ++r) part.points[i].repeats[r].record->test_top1 = tops[i][r];
  EXPECT_TRUE(has(said(part), "best is sgd with 60.7% in the mean of 3 seeds")) << said(part);
}

TEST(Verdict, OfASingleRun) {
  Study study;
  Part part;
  part.name = part.title = "run";
  part.kind = PartKind::accuracy;
  part.points.push_back({"", {}, {}, {done(0, sample_run(2, 64, 27, 0.05, 0.02, 0.61))}});
  study.parts.push_back(part);
  const std::string text = all_of(verdict(study));
  EXPECT_TRUE(has(text, "run: an epoch takes 540 ms, a step 27 ms, 2,400 images per second."))
      << text;
  EXPECT_TRUE(has(text, "the rank that holds most takes 10 MB at its peak, 10 MB were planned."))
      << text;
  EXPECT_TRUE(has(text, "communication that is not hidden 5.0%, waiting for other ranks 2.0%"))
      << text;
  EXPECT_TRUE(
      has(text, "the final accuracy is 61.0% (the best epoch had 62.0%), the last loss 1.2."))
      << text;
  EXPECT_FALSE(has(text, "seed") || has(text, "measured once")) << text;
}

TEST(Layers, PublishedRowsAreSharesOfTheirLayer) {
  Part part = layers_part();
  part.published = {{"embeddings", 5}, {"msa.qkv", 2}, {"msa.scores", 1}, {"mlp", 7}};
  EXPECT_DOUBLE_EQ(published_layer(part), 10);
  EXPECT_DOUBLE_EQ(published_share(part, "msa.qkv"), 0.2);
  EXPECT_DOUBLE_EQ(published_share(part, "msa"), 0.3);
  EXPECT_TRUE(std::isnan(published_share(part, "embeddings")));
  part.published.emplace_back("msa", 3);  // the family itself: its rows count once
  EXPECT_DOUBLE_EQ(published_layer(part), 10);
  EXPECT_DOUBLE_EQ(published_share(part, "msa"), 0.3);
}

// Families and shares of one layer; what stands outside of the layers is in the whole pass only.
TEST(Verdict, OfTheLayersOfAModel) {
  Part part = layers_part();
  std::string text = said(part);
  EXPECT_TRUE(has(text,
                  "of a layer mlp takes 61%, msa 35%; the whole pass takes 140 ms with 1 "
                  "thread, 69 ms with 2 threads."))
      << text;
  EXPECT_TRUE(has(text, "published: of a layer mlp takes 65%, msa 33%.")) << text;
  // Two axes: a sentence for each value of the first, with the range over the other.
  for (Point& p : part.points) p.axes.insert(p.axes.begin(), {"run.fuse", "false"});
  for (Point p : layers_part().points) {
    p.axes.insert(p.axes.begin(), {"run.fuse", "true"});
    PartRecord& qkv = p.repeats[0].record->parts[1];
    if (p.axes[1].second == "2") qkv.seconds *= 2;
    part.points.push_back(p);
  }
  text = said(part);
  EXPECT_TRUE(has(text, "fuse false: of a layer mlp takes 61%, msa 35%;")) << text;
  EXPECT_TRUE(has(text, "fuse true: of a layer mlp takes 49% to 61%, msa 35% to 49%;")) << text;
}

}  // namespace sentences
}  // namespace tessera::report::test
