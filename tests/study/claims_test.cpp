// Claims: what their expressions mean, what is refused (all of it, with its place), the verdicts,
// and that no text does harm.
#include "study/claims.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/check.h"
#include "files/scratch.h"
#include "files/text.h"
#include "page/page.h"
#include "study/claim_expression.h"

namespace tessera::study {
namespace claims_test {

using config::StudyClaim;

double value(const std::string& text) { return parse_expression(text).evaluate({}); }

std::string refusal(const std::string& text, bool condition = false) {
  try {
    if (condition)
      (void)parse_condition(text);
    else
      (void)parse_expression(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::usage);
    return e.message;
  }
  return "";
}

report::RunRecord run(double seconds, double top1 = 0.5) {
  report::RunRecord r;
  r.epoch_seconds = seconds;
  r.test_top1 = top1;
  r.breakdown.compute = 60;
  r.breakdown.comm_exposed = 20;
  r.breakdown.wait = 20;
  r.breakdown.comm_hidden = 10;
  r.epochs.resize(2);
  r.epochs[1].loss = 0.25;
  r.by_rank.resize(2);
  r.by_rank[1].breakdown.compute = 100;
  r.parts = {{"ln", 1, 0.1, 1},
             {"msa.qkv", 4, 0.4, 1, 0.9},
             {"msa.proj", 2, 0.2, 1, 0.6},
             {"msam", 0, 0, 1},
             {"ln", 3, 0.3, 1}};
  return r;
}

report::Point point(const std::string& technique,
                    std::vector<std::pair<std::string, std::string>> axes,
                    const std::vector<double>& seconds) {
  report::Point p;
  p.technique = technique;
  p.axes = std::move(axes);
  for (double s : seconds)
    p.repeats.push_back(
        {static_cast<int>(p.repeats.size()), report::Outcome::done, "", "", "", 1, s, run(s)});
  return p;
}

report::Study study() {
  report::Study s;
  s.file = "studies/x.toml";
  s.command = "tessera study studies/x.toml --fresh";
  report::Part strong;
  strong.name = "strong";
  strong.points = {point("", {{"run.np", "1"}, {"batch.global", "64"}}, {4, 6, 5}),
                   point("", {{"run.np", "2"}, {"batch.global", "64"}}, {2.5, 2, 3}),
                   point("", {{"run.np", "1"}, {"batch.global", "16"}}, {8})};
  report::Part techniques;
  techniques.name = "techniques";
  techniques.points = {point("one rank", {}, {10}), point("GPipe [1, 1]", {}, {8}),
                       point("broken, alas", {}, {1})};
  report::Repeat& broken = techniques.points[2].repeats[0];
  broken.outcome = report::Outcome::failed;
  broken.reason = "it ran out of memory";
  broken.record.reset();
  s.parts = {strong, techniques};
  return s;
}

StudyClaim claim_of(const std::string& paper, const std::string& says, const std::string& number,
                    const std::string& holds, const std::string& untestable = "",
                    const std::string& note = "") {
  StudyClaim c;
  c.paper = paper;
  c.says = says;
  c.number = number;
  c.holds = holds;
  c.untestable = untestable;
  c.note = note;
  return c;
}
StudyClaim claim(const std::string& number, const std::string& holds = ">= 0") {
  StudyClaim c = claim_of("vit", "It is so.", number, holds);
  c.unit = "x";
  return c;
}

report::ClaimResult judged(const StudyClaim& c) { return judge_claims({c}, study()).at(0); }

TEST(Claims, ExpressionsAreArithmetic) {
  EXPECT_DOUBLE_EQ(value("1 + 2 * 3"), 7);
  EXPECT_DOUBLE_EQ(value("(1 + 2) * 3"), 9);
  EXPECT_DOUBLE_EQ(value("8 / 4 / 2"), 1);
  EXPECT_DOUBLE_EQ(value("1 - 2 - 3"), -4);
  EXPECT_DOUBLE_EQ(value("--2 * -3"), -6);
  EXPECT_DOUBLE_EQ(value(" min(3, 1+1, 4) + max( 1 ,.5e1 ) - abs(-2)"), 5);
  EXPECT_TRUE(std::isnan(value("min(1, 0/0)")));
}

TEST(Claims, QuantitiesAreRead) {
  const Expression e = parse_expression(
      "share[Layer Norm]( table 1 ; run.threads=2, parallel.stages=[1, 2],technique = \"a, (b)\", "
      "repeat=min) / loss(x)");
  ASSERT_EQ(e.quantities.size(), 2u);
  const Quantity& q = e.quantities[0];
  EXPECT_EQ(q.metric, "share");
  EXPECT_EQ(q.row, "Layer Norm");
  EXPECT_EQ(q.part, "table 1");
  EXPECT_EQ(q.repeat, "min");
  const std::vector<std::pair<std::string, std::string>> where = {
      {"run.threads", "2"}, {"parallel.stages", "[1, 2]"}, {"technique", "a, (b)"}};
  EXPECT_EQ(q.where, where);
  EXPECT_EQ(e.quantities[1].part, "x");
  const double values[] = {6, 3};
  EXPECT_DOUBLE_EQ(e.evaluate(values), 2);
}

TEST(Claims, ConditionsHaveOpenAndClosedEnds) {
  EXPECT_TRUE(parse_condition(">= 1.7").holds(1.7));
  EXPECT_FALSE(parse_condition("> 1.7").holds(1.7));
  EXPECT_TRUE(parse_condition("<=-1").holds(-1));
  EXPECT_FALSE(parse_condition("< 0.1").holds(0.1));
  EXPECT_TRUE(parse_condition("between 0.9 and 1.1").holds(1.1));
  EXPECT_FALSE(parse_condition("between 0.9 and 1.1").holds(1.2));
  EXPECT_FALSE(parse_condition("< 1").holds(std::nan("")));
  for (const char* bad : {"", "1.7", "= 1", ">= ", "between 2 and 1", "between 1", "between 1 or 2",
                          ">= 1 x", ">= nan", "> inf", "<< 1", ">= 1e999"})
    EXPECT_NE(refusal(bad, true), "") << bad;
}

TEST(Claims, WhatCannotBeReadIsRefusedWithItsColumn) {
  EXPECT_EQ(refusal("1 + $"), "number, column 5: expected a number, a quantity or (, found $");
  EXPECT_EQ(refusal("(1 + 2"), "number, column 7: expected )");
  EXPECT_EQ(refusal("loss(x) loss(y)"),
            "number, column 9: expected +, -, *, / or the end, found loss(y)");
  for (const char* bad : {"",
                          "1 +",
                          "loss",
                          "loss(",
                          "loss()",
                          "loss(x;)",
                          "loss(x; a)",
                          "loss(x; a=)",
                          "loss(x; a=1, a=2)",
                          "loss(x; repeat=last)",
                          "min()",
                          "abs(1, 2)",
                          "share[](x)",
                          "share[a(x)",
                          "loss(x; a=\"b)",
                          "loss(x; a=])",
                          "1e999",
                          "0x10",
                          "1 2",
                          ")",
                          "loss(x; a=1"})
    EXPECT_NE(refusal(bad), "") << bad;
}

TEST(Claims, DepthAndLengthAreLimited) {
  EXPECT_NE(refusal(std::string(1000, '(') + "1" + std::string(999, ')')), "");
  EXPECT_NE(refusal(std::string(1000, '-') + "1"), "");
  EXPECT_NE(refusal(std::string(3000, ' ') + "1"), "");
  EXPECT_EQ(refusal(std::string(20, '(') + "1" + std::string(20, ')')), "");
  std::string chain = "1";
  while (chain.size() < kLongestExpression - 2) chain += "+1";
  EXPECT_EQ(refusal(chain), "");  // long, not deep
}

TEST(Claims, TheMedianCountsAndTheRangeIsThatOfTheRepeats) {
  const std::string ratio =
      "epoch_seconds(strong; run.np=1, batch.global=64) / epoch_seconds(strong; run.np=2)";
  const report::ClaimResult r = judged(claim(ratio, ">= 1.7"));
  EXPECT_EQ(r.verdict, "holds");
  EXPECT_EQ(r.number, "2x (1.6 to 3), asked: >= 1.7");  // 5 / 2.5; by repeat 4 / 2.5, 6 / 2, 5 / 3
  EXPECT_EQ(r.note, "Single repeats fall on both sides.");
  EXPECT_EQ(r.command, "tessera study studies/x.toml --only strong");
  EXPECT_EQ(judged(claim(ratio + " / epoch_seconds(techniques; technique=one rank)")).command,
            "tessera study studies/x.toml --only strong --only techniques");
  EXPECT_EQ(judged(claim(ratio, "> 2")).verdict, "does not hold");
  EXPECT_EQ(judged(claim("epoch_seconds(strong; run.np=1, batch.global=64, repeat=min)"))
                .number.substr(0, 2),
            "4x");
  EXPECT_EQ(judged(claim("epoch_seconds(strong; batch.global=16.0)")).number, "8x, asked: >= 0");
}

TEST(Claims, MetricsOfBreakdownsRanksAndTables) {
  EXPECT_EQ(judged(claim("100 * exposed_share(techniques; technique=one rank)")).number,
            "20x, asked: >= 0");
  EXPECT_EQ(judged(claim("hidden_share(techniques; technique=one rank)")).number,
            "0.1x, asked: >= 0");
  EXPECT_EQ(judged(claim("compute_share[1](techniques; technique=one rank)")).number,
            "1x, asked: >= 0");
  EXPECT_EQ(judged(claim("loss[2](techniques; technique=one rank)")).number, "0.25x, asked: >= 0");
  EXPECT_EQ(judged(claim("loss[3](techniques; technique=one rank)")).verdict, "no number");
  EXPECT_EQ(judged(claim("share[ln](techniques; technique=GPipe [1, 1])")).number,
            "0.4x, asked: >= 0");
  EXPECT_EQ(judged(claim("seconds[msa](techniques; technique=one rank)")).number,
            "6x, asked: >= 0");
  EXPECT_EQ(judged(claim("busy[msa](techniques; technique=one rank)")).number, "0.8x, asked: >= 0");
  EXPECT_EQ(judged(claim("busy[ln](techniques; technique=one rank)")).verdict, "no number");
  EXPECT_EQ(judged(claim("seconds[msa.qkv](techniques; technique=one rank)")).number,
            "4x, asked: >= 0");
  EXPECT_EQ(judged(claim("seconds[ln](techniques; technique=GPipe [1, 1])")).number,
            "4x, asked: >= 0");
}

TEST(Claims, DigitsDoNotContradictTheVerdict) {
  const report::ClaimResult r = judged(claim("1.6996", ">= 1.7"));
  EXPECT_EQ(r.verdict, "does not hold");
  EXPECT_EQ(r.number, "1.6996x, asked: >= 1.7");
  EXPECT_EQ(judged(claim("1.6996", ">= 1.6")).number, "1.7x, asked: >= 1.6");
  EXPECT_EQ(judged(claim("123456.25", "> 123456")).number, "123456.2x, asked: > 123456");
  EXPECT_EQ(judged(claim("123456.25", "> 1")).number, "123456x, asked: > 1");
}

TEST(Claims, WhatIsStillToComeIsNotRun) {
  report::Study s = study();
  const StudyClaim broken = claim("epoch_seconds(techniques; technique=\"broken, alas\")");
  EXPECT_EQ(judge_claims({broken}, s).at(0).verdict, "no number");
  s.parts[1].points[2].repeats.emplace_back();
  EXPECT_EQ(judge_claims({broken}, s).at(0).verdict, "not run");
  // Open at one of its points, and not finite at the other.
  const StudyClaim both =
      claim("loss(strong; run.np=2) + epoch_seconds(techniques; technique=\"broken, alas\")");
  EXPECT_EQ(judge_claims({both}, s).at(0).verdict, "not run");
}

TEST(Claims, WhatEndedWithoutOneHasNoNumber) {
  report::ClaimResult r = judged(claim("epoch_seconds(techniques; technique=\"broken, alas\")"));
  EXPECT_EQ(r.verdict, "no number");
  EXPECT_NE(r.note.find("it ran out of memory"), std::string::npos) << r.note;
  EXPECT_EQ(judged(claim("loss(strong; run.np=2)")).verdict,
            "no number");  // not written by the run
  EXPECT_EQ(judged(claim("compute_share[7](techniques; technique=one rank)")).verdict, "no number");
  EXPECT_EQ(judged(claim("share[mlp](techniques; technique=one rank)")).verdict, "no number");
  EXPECT_EQ(judged(claim("1 / (epoch_seconds(strong; run.np=2) - epoch_seconds(strong; run.np=2))"))
                .verdict,
            "no number");
  StudyClaim untestable = claim_of("vit", "A100s are fast.", "", "", "it needs A100s", "So it is");
  r = judged(untestable);
  EXPECT_EQ(r.verdict, "not testable here");
  EXPECT_EQ(r.note, "it needs A100s. So it is.");
  EXPECT_EQ(r.number, "");
}

TEST(Claims, AllThatIsWrongIsSaidBeforeAnythingRuns) {
  report::Study plan = study();
  for (report::Part& part : plan.parts)
    for (report::Point& p : part.points)
      for (report::Repeat& r : p.repeats) {
        r.outcome = report::Outcome::waiting;
        r.record.reset();
      }
  const std::vector<StudyClaim> claims = {
      claim("epoch_seconds(strong; run.np=1) + epoch_secs(strong; run.np=2)", "~ 1"),
      claim("loss(stong) + loss(techniques) + loss(strong; run.np=3) + loss(strong; "
            "data.fraction=1)"),
      claim_of("", "", "", ""),
      claim_of("vit", "x", "1", ">= 1", "no machine"),
      claim_of("vit", "x", "1", ""),
      claim(
          "share(strong; run.np=2) + wall[1](strong; run.np=2) + wait_share[a](strong; run.np=2)"),
      claim("epoch_seconds(strong; run.np=2)"),
  };
  std::string all;
  const auto problems = check_claims(claims, plan);
  for (const std::string& p : problems) all += p + "\n";
  for (const char* expected :
       {"claim 1 (It is so.): number, column 1: 2 points of strong fit: say batch.global (64, 16)",
        "column 35: there is no metric epoch_secs; did you mean",
        "claim 1 (It is so.): holds, column 1: expected >=",
        "there is no part stong; there are strong, techniques",
        "3 points of techniques fit: say technique (one rank, GPipe [1, 1], broken, alas)",
        "part strong has no run.np = 3; there are 1, 2",
        "part strong has no data.fraction in its grid", "claim 3 (): paper is missing",
        "claim 3 (): says is empty", "claim 3 (): it has neither",
        "claim 4 (x): it has a number and is untestable", "claim 5 (x): holds is missing",
        "share needs a row", "wall has no rows", "wait_share[RANK]: expected a number, found a"})
    EXPECT_NE(all.find(expected), std::string::npos) << expected << "\nin\n" << all;
  EXPECT_EQ(problems.size(), 15u) << all;
  EXPECT_EQ(all.find("claim 7"), std::string::npos) << all;
  StudyClaim placed = claims[1];
  placed.place = {"s.toml", 12, 1};
  EXPECT_TRUE(check_claims({placed}, plan).at(0).starts_with("line 12, claim 1 (It is so.): "));
}

TEST(Claims, TheDocumentHasARowForEachAndNothingBreaksItsTables) {
  StudyClaim odd = claim("epoch_seconds(strong; run.np=2)");
  odd.says = "a | b\nc <script>";
  const auto results = judge_claims(
      {odd, claim_of("techniques", "It needs a cluster.", "", "", "there is none")}, study());
  const std::string text = claims_markdown(results, study());
  EXPECT_NE(text.find("| a \\| b c &lt;script> | `tessera study studies/x.toml --only strong` | "
                      "2.5x (2 to 3), asked: >= 0 | holds |  |\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("| It needs a cluster. |  |  | not testable here | there is none. |\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("- holds: 1\n- not testable here: 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("## Benchmarking image"), std::string::npos) << text;
  EXPECT_EQ(text.find("## Performance"), std::string::npos) << text;
  EXPECT_TRUE(text.starts_with("# What the three studies say, tested\n")) << text;
  // One's own.
  odd.paper = "mine";
  const StudyClaim broken = claim("epoch_seconds(techniques; technique=\"broken, alas\")");
  const std::string own = claims_markdown(judge_claims({odd, broken}, study()), study());
  EXPECT_TRUE(own.starts_with("# Claims, tested\n")) << own;
  EXPECT_NE(own.find("\n## mine\n"), std::string::npos) << own;
  EXPECT_NE(own.find("- no number: 1\n"), std::string::npos) << own;
  EXPECT_NE(
      own.find("| It is so. | `tessera study studies/x.toml --only techniques` |  | no number |"),
      std::string::npos)
      << own;
}

TEST(Claims, RunsOfSeveralBuildsAreCounted) {
  report::Study s = study();
  const auto build = [&](std::size_t part, std::size_t point, const char* commit) {
    for (report::Repeat& r : s.parts[part].points[point].repeats)
      r.record->env = {{"cpu", "x"}, {"cores", 2}, {"commit", commit}};
  };
  EXPECT_EQ(report::commits_of(s), "");
  build(0, 0, "aaaa");
  EXPECT_EQ(report::commits_of(s), "commit aaaa");
  EXPECT_NE(claims_markdown({}, s).find("Machine: x, 2 cores, commit aaaa.\n"), std::string::npos)
      << claims_markdown({}, s);
  build(0, 2, "bbbb");
  EXPECT_NE(claims_markdown({}, s).find(", commits aaaa (3 runs), bbbb (1 run).\n"),
            std::string::npos)
      << claims_markdown({}, s);
  const test::Scratch scratch;
  const std::string page = files::read_text(report::write_page(s, scratch.folder().string()));
  EXPECT_NE(page.find("Runs of different builds are mixed: commits aaaa (3 runs), bbbb (1 run). "
                      "--fresh makes them anew."),
            page.npos);
}

TEST(Claims, NoTextDoesHarm) {
  const std::string pieces[] = {"loss",      "(",          ")",
                                "strong",    ";",          "run.np",
                                "=",         "1",          ",",
                                "[",         "]",          "\"",
                                "+",         "-",          "*",
                                "/",         "min(",       "max(",
                                "abs(",      " ",          "1e",
                                ".",         "\n",         std::string("\0", 1),
                                "\xff",      "repeat=min", "technique=one rank",
                                "share[ln]", "between ",   " and ",
                                ">=",        "<"};
  std::mt19937 random(7);
  const report::Study s = study();
  for (int i = 0; i < 4000; ++i) {
    std::string number, holds;
    for (unsigned n = random() % 20; n > 0; --n) number += pieces[random() % std::size(pieces)];
    for (unsigned n = random() % 6; n > 0; --n) holds += pieces[random() % std::size(pieces)];
    const StudyClaim c = claim(number, holds);
    const bool sound = check_claims({c}, s).empty();
    const std::string verdict = judge_claims({c}, s).at(0).verdict;
    EXPECT_TRUE(sound || verdict == kNotRun) << number << " | " << holds;
  }
}

}  // namespace claims_test
}  // namespace tessera::study
