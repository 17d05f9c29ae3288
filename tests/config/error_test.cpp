// How errors look (byte for byte), hostile configurations (corpus.h), and a mutation fuzz: only
// tessera::Error with exit code 2 may escape.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "config/corpus.h"
#include "config/flags.h"
#include "config/print.h"
#include "config/reader.h"

namespace tessera::config::error_test {
namespace {

using hostile::Bad;
using hostile::corpus;

std::string refusal(const std::string& text, const std::vector<Override>& overrides = {},
                    const std::string& file = "train.toml") {
  try {
    load_text(text, file, overrides);
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2);
    return std::string("error: ") + e.what() + "\n";
  }
  return "(accepted)";
}

TEST(Look, ThreeErrorsAtOnce) {
  const std::string text = R"([model]
name   = "vit_tiny_cifar"
dpeth  = 4

[optim]
lr     = "fast"

[run]
epochs = 2

[parallel]
tp          = 5
)";
  EXPECT_EQ(refusal(text, {from_set("optim.eps=-1")}),
            R"(error: train.toml:3:1: there is no key model.dpeth
    3 | dpeth  = 4
      | ^ did you mean depth?
   also: train.toml:6:10: optim.lr: expected a number, found "fast"
    6 | lr     = "fast"
      |          ^
   also: train.toml:12:15: parallel.tp = 5 does not divide model.heads = 3
   12 | tp          = 5
      |               ^ choose 1 or 3
   also: train.toml:12:15: parallel.tp = 5 does not divide model.mlp = 768
   12 | tp          = 5
      |               ^ choose 1 or 3
   also: --set optim.eps=-1: optim.eps = -1 is out of range; choose more than 0, at most 1
   help: `tessera config check train.toml` re-checks without running
)");
}

TEST(Look, CrossCheckStandsAtTheKeyAndAdvises) {
  EXPECT_EQ(refusal("[run]\nsteps = 1\n[model]\nname = \"vit_b_16\"\nheads\t= 5\n"),
            R"(error: train.toml:5:9: model.heads = 5 does not divide model.dim = 768
    5 | heads = 5
      |         ^ choose 2, 3, 4, 6, 8, 12, 16 or 24
   help: `tessera config check train.toml` re-checks without running
)");
}

TEST(Look, CommandLineAlone) {
  EXPECT_EQ(refusal("", {from_set("model.depth=x"), from_set("run.steps=1")}, ""),
            R"(error: --set model.depth=x: model.depth: expected a whole number, found "x"
   help: `tessera config show` prints every key and its value
)");
}

TEST(Look, StructuredProblemsForScripts) {
  try {
    load_text("[model]\ndepth = 0\n", "a.toml", {}, Purpose::other);
    FAIL();
  } catch (const ConfigError& e) {
    ASSERT_EQ(e.problems.size(), 1u);
    EXPECT_EQ(e.problems[0].place.line, 2);
    EXPECT_EQ(e.problems[0].place.column, 9);
    EXPECT_EQ(e.problems[0].advice, "choose 1 to 1024");
    EXPECT_EQ(e.where, "a.toml:2:9");
  }
}

TEST(Hostile, EveryConfigIsRefusedClearly) {
  for (const Bad& bad : corpus()) {
    const std::string message = refusal(bad.toml, {from_set("run.steps=10")});
    for (const std::string& part : bad.says)
      EXPECT_NE(message.find(part), message.npos) << bad.name << "\n"
                                                  << message << "lacks: " << part;
    EXPECT_LT(message.size(), 20000u) << bad.name;
  }
}

TEST(Hostile, BadOverridesAreRefusedClearly) {
  for (const auto& [set, says] : std::vector<std::pair<std::string, std::string>>{
           {"model.depth", "expected key=value"},
           {"", "expected key=value"},
           {"=3", "expected key=value"},
           {"model.depth=", "expected a whole number, found an empty text"},
           {"model=3", "'model' is not a key"},
           {"model.=3", "there is no key model."},
           {".depth=3", "there is no section []"},
           {"modle.depth=3", "did you mean [model]?"},
           {"model.depth.x=3", "there is no key model.depth.x"},
           {"run.seed=1\nrun.np = 4", "expected a whole number"},
           {"run.seed={a=1}", "expected a whole number"},
           {"run.name=\xff", "not valid UTF-8"},
           {"run.name=a\x01", "control character"},
           {"optim.lr=inf", "finite"},
           {"run.out=", "run.out: expected a text, found an empty text"},
           {"parallel.weights=" + std::string(50000, '['), "parallel.weights"}}) {
    const std::string message = refusal("", {from_set(set), from_set("run.steps=10")}, "");
    EXPECT_NE(message.find(says), message.npos) << set.substr(0, 80) << "\n" << message;
    EXPECT_EQ(message.find("\xff"), message.npos);
  }
}

TEST(Hostile, Files) {
  const auto dir = std::filesystem::temp_directory_path() /
                   ("tessera_config_test_" + std::to_string(std::random_device{}()));
  std::filesystem::create_directories(dir);
  const auto says = [](const std::string& path) -> std::string {
    try {
      load(path, {}, Purpose::other);
    } catch (const Error& e) {
      EXPECT_EQ(e.exit_code(), 2);
      return e.what();
    }
    return "(accepted)";
  };
  EXPECT_NE(says((dir / "none.toml").string()).find("none.toml: there is no such file"),
            std::string::npos);
  EXPECT_NE(says(dir.string()).find("expected a TOML file, found a folder"), std::string::npos);
  // A file that cannot be seen may be there.
  std::filesystem::create_symlink("circle.toml", dir / "circle.toml");
  EXPECT_NE(says((dir / "circle.toml").string()).find("cannot be looked at: Too many levels"),
            std::string::npos);
  const std::string hidden = "init=" + (dir / "circle.toml").string();
  try {
    load(std::nullopt, {from_set("model." + hidden), from_set("run.steps=1")}, Purpose::check);
    ADD_FAILURE() << "weights that cannot be seen were accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("cannot be looked at: Too many levels"), std::string::npos)
        << e.what();
  }
  EXPECT_NE(says("").find("empty"), std::string::npos);
  EXPECT_NE(says("/dev/zero").find("larger than 1 MiB"), std::string::npos);
  EXPECT_EQ(says("/dev/null"), "(accepted)");
  std::ofstream(dir / "ok.toml") << "\xef\xbb\xbf[model]\r\ndepth = 2\r\n";
  EXPECT_EQ(load((dir / "ok.toml").string(), {}, Purpose::other).model.depth, 2);
  std::ofstream(dir / "bad.toml") << "\xef\xbb\xbf"
                                  << "depth = 2\r\n";
  EXPECT_NE(says((dir / "bad.toml").string()).find("\n    1 | depth = 2\n      | ^ did you mean"),
            std::string::npos)
      << says((dir / "bad.toml").string());
  std::filesystem::remove_all(dir);
}

// Mutates sound and hostile texts. What is accepted must also survive the round trip; what is not
// must be a tessera::Error with exit code 2.
TEST(Hostile, Fuzz) {
  std::vector<std::string> seeds = {
      to_toml(load({}, {from_set("run.steps=10")})),
      "[model]\nname=\"vit_b_16\"\nimage=[224,224]\n[lr]\nwarmup=\"5%\"\n",
      "[run]\nepochs=3\nuntil=\"top1=0.9\"\n[batch]\nglobal=64\nmicro=16\n[data]\nsource="
      "\"synthetic:64x64x3,10\"\n"};
  for (const Bad& bad : corpus())
    if (bad.toml.size() < 2000) seeds.push_back(bad.toml);
  const std::vector<std::string> tokens = {"=",
                                           "[",
                                           "]",
                                           "[[",
                                           "]]",
                                           "{",
                                           "}",
                                           "\"",
                                           "'",
                                           "\"\"\"",
                                           ".",
                                           ",",
                                           "\n",
                                           "#",
                                           "-",
                                           "1",
                                           "0",
                                           "nan",
                                           "inf",
                                           "1e308",
                                           "\\u0000",
                                           "\\",
                                           "9223372036854775807",
                                           "0x",
                                           "true",
                                           "\xff",
                                           "\xc3",
                                           "\xe2\x82\xac",
                                           "%",
                                           "[model]",
                                           "depth = ",
                                           "heads = 7\n",
                                           "[parallel]\n",
                                           "tp = 3\n",
                                           "source = \"synthetic:",
                                           "every=",
                                           "1979-05-27T07:32:00Z"};
  const char* wish = std::getenv("TESSERA_FUZZ_ITERATIONS");
  const long iterations = wish ? std::atol(wish) : 3000;
  std::mt19937_64 random(1);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  long accepted = 0;
  for (long i = 0; i < iterations; ++i) {
    std::string text = seeds[below(seeds.size())];
    if (i % 2 == 0) text = seeds[below(3)];
    for (std::size_t m = below(4) + 1; m > 0; --m) {
      const std::size_t at = below(text.size() + 1);
      switch (below(6)) {
        case 0:
          text.insert(at, tokens[below(tokens.size())]);
          break;
        case 1:
          text.erase(at, below(8) + 1);
          break;
        case 2:
          if (at < text.size()) text[at] = static_cast<char>(random());
          break;
        case 3:
          text.insert(at, text.substr(below(text.size() + 1), below(40)));
          break;
        case 4:
          if (at < text.size() && text[at] >= '0' && text[at] <= '9')
            text[at] = static_cast<char>('0' + below(10));
          break;
        case 5:
          text.insert(at, seeds[below(seeds.size())].substr(0, below(200)));
          break;
      }
    }
    std::vector<Override> overrides;
    if (i % 3 == 0) overrides.push_back(from_set("run.steps=5"));
    if (i % 5 == 0) overrides.push_back(from_set(text.substr(0, text.find('\n'))));
    try {
      const Config c = load_text(text, "fuzz.toml", overrides);
      ++accepted;
      ASSERT_EQ(load_text(to_toml(c), "again.toml"), c) << text;
      ASSERT_FALSE(to_json(c).empty());
    } catch (const Error& e) {
      ASSERT_EQ(e.exit_code(), 2) << e.what() << "\n" << text;
      ASSERT_NE(std::string(e.what()).find("fuzz.toml"), std::string::npos) << e.what() << "\n"
                                                                            << text;
    }
    try {
      model_from_json(text);
    } catch (const Error& e) {
      ASSERT_EQ(e.exit_code(), 4) << e.what();
    }
  }
  EXPECT_GT(accepted, iterations / 100);  // or the loop would test the TOML parser alone
}

}  // namespace
}  // namespace tessera::config::error_test
