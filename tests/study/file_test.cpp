// A study's file: what is read of it, and that everything wrong with it is said at once, with place
// and advice.
#include "config/study/file.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace tessera::config::study_file_test {
namespace {

constexpr const char* whole = R"~([study]
name       = "quick"
title      = "Two ranks"
what       = "What a second rank brings."
repeats    = 3
warmup     = 4
time_limit = 60.5
keep       = true

[launch]
with      = "mpirun"
hostfile  = "hosts.txt"
per_host  = 1
arguments = ["--bind-to", "core"]

[base]
config = "../recipes/x.toml"
model.name = "vit_micro"
data.source = "synthetic"
run.epochs = 2
[base.optim]
betas = [0.9, 0.95]
lr = 1e-3

[[part]]
name = "strong"
kind = "strong"
what = "The same work."
set  = { "batch.global" = 64, data = { flip = "random" } }
grid = { "run.np" = [2, 1], "batch.accumulate" = [1, 2] }

[[part]]
name = "techniques"
kind = "techniques"
repeats = 1
[[part.technique]]
name = "one rank"
[[part.technique]]
name = "data parallel"
set  = { "run.np" = 2, "parallel.weights" = "measured" }

[[part]]
name = "where"
kind = "layers"
published = { "msa" = 21.22, "mlp" = 40 }
published_by = "a paper"
arguments = ["--repeats", "3"]

[[claim]]
paper  = "vit"
says   = "Twice is nice."
number = "epoch_seconds(strong; run.np=1)"
holds  = ">= 1.7"
unit   = "x"
[[claim]]
paper  = "inference"
says   = "A GPU is faster."
untestable = "there is none here"
)~";

TEST(StudyFile, AllOfItIsRead) {
  const StudyFile f = study_from_text(whole, "studies/quick.toml");
  EXPECT_EQ(f.name, "quick");
  EXPECT_EQ(f.repeats, 3);
  EXPECT_EQ(f.warmup, 4);
  EXPECT_EQ(f.time_limit, 60.5);
  EXPECT_TRUE(f.keep);
  EXPECT_EQ(f.launch.with, "mpirun");
  EXPECT_EQ(f.launch.hostfile, "studies/hosts.txt");
  EXPECT_EQ(f.launch.arguments, (std::vector<std::string>{"--bind-to", "core"}));
  EXPECT_EQ(f.config, "recipes/x.toml");
  std::vector<std::string> base;
  for (const StudySetting& s : f.base) base.push_back(s.key + "=" + s.value);
  EXPECT_EQ(base,
            (std::vector<std::string>{"model.name=vit_micro", "data.source=synthetic",
                                      "run.epochs=2", "optim.betas=[0.9,0.95]", "optim.lr=0.001"}));
  ASSERT_EQ(f.parts.size(), 3u);
  const StudyPart& strong = f.parts[0];
  EXPECT_EQ(strong.axis, "run.np");
  EXPECT_EQ(strong.title, "strong");
  ASSERT_EQ(strong.set.size(), 2u);
  EXPECT_EQ(strong.set[1].key, "data.flip");
  ASSERT_EQ(strong.grid.size(), 2u);
  EXPECT_EQ(strong.grid[0].key, "run.np");  // in the order of the file, not of the alphabet
  EXPECT_EQ(strong.grid[0].values, (std::vector<std::string>{"2", "1"}));
  EXPECT_EQ(f.parts[1].repeats, 1);
  ASSERT_EQ(f.parts[1].techniques.size(), 2u);
  EXPECT_EQ(f.parts[1].techniques[1].set[1].value, "measured");
  EXPECT_EQ(f.parts[2].verb, "layers");
  EXPECT_EQ(f.parts[2].published[0], (std::pair<std::string, double>("msa", 21.22)));
  ASSERT_EQ(f.claims.size(), 2u);
  EXPECT_EQ(f.claims[0].holds, ">= 1.7");
  EXPECT_EQ(f.claims[1].untestable, "there is none here");
}

std::vector<Problem> problems_of(const std::string& text) {
  try {
    study_from_text(text, "s.toml");
  } catch (const ConfigError& e) {
    EXPECT_EQ(e.exit_code(), 2);
    return e.problems;
  }
  return {};
}

TEST(StudyFile, EverythingWrongIsSaidAtOnce) {
  try {
    study_from_text(
        "[study]\nname = \"Quick!\"\nrepaets = 3\n[base]\nmodel.dpeth = 4\nrun.out = "
        "\"x\"\n[[part]]\nname = \"a\"\nkind = \"stron\"\n"
        "grid = { \"run.np\" = 2 }\n[[clam]]\n",
        "s.toml");
    FAIL() << "accepted";
  } catch (const ConfigError& e) {
    EXPECT_EQ(
        std::string(e.what()),
        R"(s.toml:2:8: name: expected a name of a-z, 0-9, _ and -, at most 40 of them, found "Quick!"
    2 | name = "Quick!"
      |        ^
   also: s.toml:3:1: there is no key 'repaets' in [study]
    3 | repaets = 3
      | ^ did you mean repeats?
   also: s.toml:5:7: there is no key model.dpeth
    5 | model.dpeth = 4
      |       ^ did you mean model.depth?
   also: s.toml:6:5: run.out is chosen by the study
    6 | run.out = "x"
      |     ^ leave it out
   also: s.toml:9:8: kind: expected strong, weak, batch, accumulation, techniques, accuracy or layers, found "stron"
    9 | kind = "stron"
      |        ^ did you mean "strong"?
   also: s.toml:10:21: run.np: expected a list of 1 to 1000 values, found 2
   10 | grid = { "run.np" = 2 }
      |                     ^ run.np = [2]
   also: s.toml:11:3: there is no key 'clam' at the top of a study
   11 | [[clam]]
      |   ^ did you mean claim?
   help: docs/studies.md explains the file; `tessera study FILE --list` shows its runs without starting one)");
  }
}

TEST(StudyFile, WhatIsRefused) {
  const std::string head = "[study]\nname = \"q\"\n",
                    part = head + "[[part]]\nname = \"a\"\nkind = \"batch\"\n",
                    grid = "grid = { \"batch.global\" = [1] }\n";
  EXPECT_TRUE(problems_of(part + grid).empty());
  const auto refused = [](const std::string& text, const std::string& words) {
    const std::vector<Problem> all = problems_of(text);
    ASSERT_FALSE(all.empty()) << "accepted, expected " << words;
    bool found = false;
    for (const Problem& p : all)
      found = found || (p.message + "; " + p.advice).find(words) != std::string::npos;
    EXPECT_TRUE(found) << words << " is not in: " << all[0].message << "; " << all[0].advice;
  };
  refused("", "there is no section [study]");
  refused(head, "nothing to run");
  refused("[study]\n" + part.substr(head.size()) + grid, "the study has no name");
  refused("study = 1", "expected a table");
  refused("[study", "not valid TOML");
  refused(part, "needs batch.global in its grid");
  refused(part + grid + part.substr(head.size()) + grid, "two parts are called 'a'");
  refused(part + "grid = { \"batch.global\" = [1, 2, 1] }\n", "in the list twice");
  refused(part + "grid = { \"batch.global\" = [] }\n", "an empty list");
  refused(part + "grid = 3\n", "expected a table of keys");
  refused(part + grid + "axis = \"run.np\"\n", "the grid has no key run.np");
  refused(part + grid + "set = { \"launch.hots\" = 1 }\n", "did you mean launch.hosts?");
  refused(part + grid + "set = 1\n", "expected a table of keys and values");
  refused(part + grid + "repeats = 0\n", "1 to 1000, found 0");
  refused(part + grid + "time_limit = -1\n", "expected seconds");
  refused(part + grid + "arguments = [\"--check\"]\n", "arguments are for");
  refused(part + grid + "published = { a = \"b\" }\n", "expected a number");
  refused(part + grid + "technique = 1\n", "[[technique]] each");
  refused(part + grid + "[[part.technique]]\nset = {}\n", "the technique has no name");
  refused(part + grid + "[[part.technique]]\nname = \"x\"\n[[part.technique]]\nname = \"x\"\n",
          "two techniques are called 'x'");
  refused(head + "[[part]]\nname = \"a\"\nkind = \"techniques\"\n", "needs [[part.technique]]");
  refused(part + grid + "[[part.technique]]\nname = \"large\"\nset = { \"batch.global\" = 64 }\n",
          "technique 'large' sets batch.global, but the grid of part a does, too");
  const std::string seeds =
      "[[part]]\nname = \"a\"\nkind = \"accuracy\"\ngrid = { \"run.seed\" = [1, 2] }\n";
  EXPECT_TRUE(problems_of(head + seeds).empty());
  refused(head + "repeats = 2\n" + seeds,
          "leave run.seed out of the grid, or give the part repeats = 1");
  refused(seeds + "repeats = 2\n" + head, "part a has run.seed in its grid and 2 repeats");
  EXPECT_TRUE(problems_of(head + "repeats = 2\n" + seeds + "repeats = 1\n").empty());
  const std::string infer = part + grid + "verb = \"infer\"\n";
  EXPECT_TRUE(
      problems_of(infer + "arguments = [\"--repeats\", \"-1\", \"--check\", \"--dtype=bf16\"]\n")
          .empty());
  refused(infer + "arguments = [\"--bogus\"]\n", "`tessera bench infer` has no --bogus");
  refused(infer + "arguments = [\"--repeat=3\"]\n", "did you mean --repeats?");
  refused(part + grid + "verb = \"layers\"\narguments = [\"--check\"]\n",
          "`tessera bench layers` has no --check");
  refused(part + grid + "[launch]\nhostfile = \"h\"\n", "with = \"local\"");
  refused(part + grid + "[[claim]]\npaper = \"vit\"\nsays = \"x\"\n", "needs number and holds");
  refused(part + grid + "[[claim]]\npaper = \"My Paper\"\nsays = \"x\"\nuntestable = \"y\"\n",
          "paper: expected a name of a-z");
  EXPECT_TRUE(
      problems_of(part + grid + "[[claim]]\npaper = \"mine\"\nsays = \"x\"\nuntestable = \"y\"\n")
          .empty());
  EXPECT_EQ(problems_of(part + grid + "[launch]\nwith = \"mpiexec\"\nper_host = 1\n").size(),
            1u);  // nothing of "local"
  refused(part + grid + "[base]\nconfig = 7\n", "expected text in quotes");
  refused("[study]\nname = \"../x\"\n" + part.substr(head.size()) + grid, "expected a name");
}

TEST(StudyFile, NothingLargeIsBuilt) {
  std::string many =
                  "[study]\nname = \"q\"\nrepeats = 11\n[[part]]\nname = \"a\"\nkind = "
                  "\"batch\"\n[part.grid]\n",
              values;
  for (int i = 1; i <= 1000; ++i) values += std::to_string(i) + ",";
  const std::vector<Problem> all = problems_of(many + "\"batch.global\" = [" + values + "]\n");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_NE(all[0].message.find("11000 runs"), std::string::npos) << all[0].message;
  for (const char* key : {"optim.lr", "optim.eps", "data.fraction", "run.seed", "run.steps",
                          "run.epochs", "lr.start"})
    many += fmt::format("\"{}\" = [{}]\n", key, values);
  EXPECT_EQ(problems_of(many + "\"batch.global\" = [" + values + "]\n").size(), 1u);
  std::string parts = "[study]\nname = \"q\"\n";
  for (int i = 0; i < 65; ++i)
    parts += fmt::format("[[part]]\nname = \"p{}\"\nkind = \"accuracy\"\n", i);
  EXPECT_NE(problems_of(parts)[0].message.find("65 of [[part]]"), std::string::npos);
  EXPECT_NE(problems_of(std::string((1 << 20) + 1, '#'))[0].message.find("1 MiB"),
            std::string::npos);
}

TEST(StudyFile, HostileTextReachesNoTerminal) {
  for (const std::string bad : {"\x1b[2J", "\xc2\x9b", "\x7f", "\x07"}) {
    const std::string quoted =
        fmt::format("[study]\nname = '{}'\n'{}' = 1\n[base]\n\"model.{}\" = 1\n", bad, bad, bad);
    try {
      study_from_text(quoted, "s" + bad + ".toml");
      FAIL() << "accepted";
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_EQ(text.find_first_of("\x1b\x7f\x07"), std::string::npos);
      EXPECT_EQ(text.find("\xc2\x9b"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace tessera::config::study_file_test
