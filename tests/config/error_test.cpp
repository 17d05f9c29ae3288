// How errors look (byte for byte), a corpus of hostile configurations, and a mutation fuzz: only
// tessera::Error with exit code 2 may escape.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "config/print.h"
#include "config/reader.h"

namespace tessera::config::error_test {
namespace {

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

struct Bad {
  std::string name, toml;
  std::vector<std::string> says;
};

std::string times(int n, std::string_view s) {
  std::string out;
  for (int i = 0; i < n; ++i) out += s;
  return out;
}

const std::vector<Bad>& corpus() {
  static const std::vector<Bad> all = {
      {"unknown section",
       "[modle]\n",
       {"train.toml:1:2: there is no section [modle]", "did you mean [model]?"}},
      {"unknown key", "[optim]\nlearning_rate = 1\n", {"there is no key optim.learning_rate"}},
      {"key of another section", "[model]\nlr = 1\n", {"did you mean optim.lr?"}},
      {"key outside sections",
       "depth = 4\n",
       {"'depth' stands outside any section", "did you mean model.depth?"}},
      {"section as value", "model = 3\n", {"model: expected a section, found 3"}},
      {"section as list",
       "[[model]]\ndepth = 3\n",
       {"model: expected a section, found a list of 1"}},
      {"key as section",
       "[model.depth]\nx = 1\n",
       {"model.depth: expected a whole number, found a table"}},
      {"text for a number",
       "[model]\ndepth = \"4\"\n",
       {"train.toml:2:9: model.depth: expected a whole number, found \"4\""}},
      {"number for a text", "[model]\nname = 4\n", {"model.name: expected a text, found 4"}},
      {"real for a whole",
       "[model]\ndepth = 4.0\n",
       {"expected a whole number, found 4.0", "write 4"}},
      {"boolean for a number", "[optim]\nlr = true\n", {"optim.lr: expected a number, found true"}},
      {"number for a boolean",
       "[data]\nshuffle = 1\n",
       {"data.shuffle: expected true or false, found 1"}},
      {"date", "[run]\nseed = 2024-01-01\n", {"expected a whole number, found a date or time"}},
      {"empty text", "[run]\nout = \"\"\n", {"run.out: expected a text, found an empty text"}},
      {"control character", "[run]\nout = \"a\\u0007b\"\n", {"control character"}},
      {"long text", "[run]\nout = \"" + times(5000, "a") + "\"\n", {"the text has 5000 bytes"}},
      {"nan", "[optim]\nlr = nan\n", {"expected a finite number, found nan"}},
      {"infinity", "[optim]\nlr = -inf\n", {"expected a finite number, found -inf"}},
      {"zero rate",
       "[optim]\nlr = 0\n",
       {"optim.lr = 0 is out of range", "choose more than 0, at most 1000"}},
      {"negative depth",
       "[model]\ndepth = -3\n",
       {"model.depth = -3 is out of range", "choose 1 to 1024"}},
      {"huge integer",
       "[run]\nsteps = 9223372036854775807\n",
       {"run.steps = 9223372036854775807 is out of range"}},
      {"integer past 64 bits",
       "[run]\nsteps = 99999999999999999999\n",
       {"train.toml:2", "not valid TOML"}},
      {"real past double", "[optim]\nlr = 1e999\n", {"train.toml:2"}},
      {"beta of one", "[optim]\nbetas = [0.9, 1.0]\n", {"optim.betas = 1.0 is out of range"}},
      {"three betas",
       "[optim]\nbetas = [0.9, 0.99, 0.9]\n",
       {"expected a list of two numbers, found a list of 3"}},
      {"image of three",
       "[model]\nimage = [1, 2, 3]\n",
       {"a whole number or [height, width], found a list of 3"}},
      {"nested image", "[model]\nimage = [[1], 2]\n", {"found a list of 1"}},
      {"unknown choice",
       "[optim]\nname = \"adam\"\n",
       {"optim.name = \"adam\" is not known", "did you mean adamw? choose adamw, sgd or lamb"}},
      {"unknown model",
       "[model]\nname = \"vit_b16\"\n",
       {"there is no model 'vit_b16'", "did you mean vit_b_16?"}},
      {"heads and dim",
       "[model]\nheads = 5\n",
       {"model.heads = 5 does not divide model.dim = 192"}},
      {"patch and image",
       "[model]\npatch = 5\n",
       {"model.patch = 5 does not divide model.image = [32, 32]", "choose 1, 2, 4, 8, 16 or 32"}},
      {"bad warm-up",
       "[lr]\nwarmup = \"five\"\n",
       {"a number of steps or a percentage such as \"5%\", found \"five\""}},
      {"warm-up past 100", "[lr]\nwarmup = \"500%\"\n", {"lr.warmup = \"500%\" is out of range"}},
      {"negative warm-up", "[lr]\nwarmup = -5\n", {"lr.warmup = -5 is out of range"}},
      {"drops at once",
       "[lr]\nstep_every = \"0%\"\n",
       {"lr.step_every = \"0%\" is out of range", "choose more than 0%, at most 100%"}},
      {"eps that f32 has not",
       "[optim]\neps = 1e-46\n",
       {"optim.eps = 1e-46 is too small for precision.dtype = \"f32\"", "1.2e-38"}},
      {"too many parameters",
       "[model]\nname = \"vit_micro\"\ndim = 65536\nmlp = 1048576\nheads = 4096\n",
       {"model.mlp = 1048576, model.depth = 4", "make 618 billion parameters; at most 64 billion"}},
      {"a tensor beyond all memory",
       "[model]\nname = \"vit_micro\"\nimage = 16384\npatch = 1\n[batch]\nglobal = 16777216\n",
       {"16777216 samples at once make a tensor of about 8.6e+17 elements",
        "choose at most 10922 with batch.global"}},
      {"what cannot be drawn",
       "[model]\nname = \"vit_micro\"\nchannels = 100\nclasses = 1\n",
       {"model.channels = 100, but synthetic images have 1 to 16 channels",
        "also: train.toml:4:11: model.classes = 1, but"}},
      {"onecycle without a rise",
       "[lr]\nschedule = \"onecycle\"\nwarmup = 0\n",
       {"lr.warmup must be more than 0"}},
      {"batch does not multiply",
       "[batch]\nglobal = 8\nmicro = 3\naccumulate = 2\n",
       {"3 x 2 = 6 but batch.global = 8"}},
      {"more micro-batches than samples",
       "[batch]\nglobal = 2\naccumulate = 3\n",
       {"batch.accumulate = 3 is more than batch.global = 2"}},
      {"huge product", "[batch]\nmicro = 16777216\naccumulate = 16777216\n", {"is out of range"}},
      {"nesterov without momentum",
       "[optim]\nname = \"sgd\"\nnesterov = true\nmomentum = 0\n",
       {"needs optim.momentum > 0"}},
      {"unknown source",
       "[data]\nsource = \"cifar:x\"\n",
       {"data.source = \"cifar:x\" is not known", "did you mean cifar10?"}},
      {"source without folder",
       "[data]\nsource = \"cifar10\"\n",
       {"does not say where the files are", "write cifar10:DIR"}},
      {"broken synthetic",
       "[data]\nsource = \"synthetic:64x64\"\n",
       {"HEIGHTxWIDTHxCHANNELS,CLASSES"}},
      {"data and model disagree",
       "[model]\nimage = 32\n[data]\nsource = \"synthetic:64x64x3,10\"\n",
       {"has 64 x 64 images", "leave model.image out"}},
      {"fraction of nothing", "[data]\nfraction = 0\n", {"data.fraction = 0 is out of range"}},
      {"recompute", "[parallel]\nrecompute = \"every=x\"\n", {"choose none, full or every=N"}},
      {"until", "[run]\nuntil = \"top1\"\n", {"expected METRIC=VALUE"}},
      {"path as a name", "[run]\nname = \"../x\"\n", {"is not a name of a folder"}},
      {"zero threads", "[run]\nthreads = 0\n", {"run.threads = 0 is out of range"}},
      {"weights",
       "[parallel]\nweights = [1, \"x\"]\n",
       {"parallel.weights: expected a number, found \"x\""}},
      {"stages word", "[parallel]\nstages = \"param\"\n", {"did you mean params?"}},
      {"tp",
       "[parallel]\ntp = 2\n",
       {"parallel.tp = 2 does not divide model.heads = 3", "choose 1 or 3"}},
      {"swin key",
       "[model]\nwindow = 7\n",
       {"model.window is not a key of the vit family", "it has image channels patch"}},
      {"duplicate key", "[model]\ndepth = 4\ndepth = 5\n", {"train.toml:3:", "not valid TOML"}},
      {"duplicate section", "[model]\n[model]\n", {"train.toml:2:", "not valid TOML"}},
      {"no value", "[model]\ndepth =\n", {"train.toml:2:", "not valid TOML"}},
      {"no end of text",
       "[model]\nname = \"vit\n",
       {"train.toml:2:8: not valid TOML: this text is not closed"}},
      {"no end of file",
       "[model]\nname = 'vit",
       {"train.toml:2:8: not valid TOML: this text is not closed", "put a ' at its end"}},
      {"no end of a long text",
       "[model]\nname = \"\"\"vit\"\n\n",
       {"train.toml:2:8: not valid TOML: this text is not closed"}},
      {"no end of section", "[model\n", {"not valid TOML"}},
      {"non-ASCII key",
       "[run]\n\u00e9 = 1\n",
       {"train.toml:2:1: not valid TOML here: a character that is not ASCII stands outside "
        "quotes"}},
      {"non-ASCII value",
       "[run]\nout = \"\u00e9\" \u00e9\n",
       {"train.toml:2:11: not valid TOML here"}},
      {"non-ASCII after a folded line",
       "[run]\nout = \"\"\"a\\\n \u00e9\"\"\"\n",
       {"train.toml:3:2: not valid TOML here: a multi-line text"}},
      {"quote in a word",
       "[run]\nseed = 0\"\u00e9\n",
       {"train.toml:2:9: not valid TOML here: a quote stands directly after something else"}},
      {"quote in a number",
       "[run]\nseed = 0.\"\u00e9\n",
       {"train.toml:2:10: not valid TOML here: a quote"}},
      {"quote in a number in a list",
       "[data]\nmean = [0[\"\u00e9\"]\n",
       {"train.toml:2:11: not valid TOML here: a quote"}},
      {"quote after a text",
       "[run]\nout = \"a\"\"\u00e9\"\n",
       {"train.toml:2:10: not valid TOML here: a quote"}},
      {"quote after a date", "[run]\nseed = 1979-05-27 \"\u00e9\"\n", {"train.toml:2:"}},
      {"date and hour",
       "[run]\nseed = 1979-05-27 0\r\"\u00e9\"\n",
       {"train.toml:2:18: not valid TOML here: two numbers"}},
      {"date, hour and comment",
       "[run]\nseed = 1979-05-27 0#\u00e9\n",
       {"train.toml:2:18: not valid TOML here: two numbers"}},
      {"control character in a name",
       "[model]\nname = \"vit\\u001b[2J\"\n",
       {"there is no model 'vit?[2J'"}},
      {"bad UTF-8", "[run]\nout = \"\xff\xfe\"\n", {"not valid TOML"}},
      {"overlong UTF-8", "[run]\nout = \"\xc0\xaf\"\n", {"not valid TOML"}},
      {"NUL", std::string("[run]\nseed = 1\0 2\n", 17), {"not valid TOML"}},
      {"binary", "\x7f\x45LF\x02\x01\x01\x01", {"not valid TOML"}},
      {"JSON", "{\"model\": {\"depth\": 4}}", {"not valid TOML"}},
      {"deep list",
       "[parallel]\nweights = " + times(100000, "[") + times(100000, "]"),
       {"not valid TOML"}},
      {"deep dotted key", "a" + times(400000, ".a") + " = 1\n", {"more than 256 dots"}},
      {"deep section", "[a" + times(400000, ".a") + "]\n", {"more than 256 dots"}},
      {"deep inline tables",
       "a = " + times(15, "[\n{a" + times(250, ".a") + " = ") + "1" + times(15, "}\n]"),
       {"train.toml"}},
      {"long key", times(500000, "k") + " = 1\n", {"stands outside any section"}},
      {"long line",
       "[optim]\n" + times(5000, " ") + "lr = 0 # " + times(5000, "x"),
       {"optim.lr = 0 is out of range", "..."}},
      {"a thousand errors",
       "[model]\n" +
           [] {
             std::string out;
             for (int i = 0; i < 1000; ++i)
               out.append("k").append(std::to_string(i)).append(" = 1\n");
             return out;
           }(),
       {"there is no key model.k0", "980 more of the kind"}},
      {"too large", std::string((1 << 20) + 1, '\n'), {"larger than 1 MiB"}},
  };
  return all;
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
