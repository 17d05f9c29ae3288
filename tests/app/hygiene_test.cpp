// Terminal hygiene: every verb, on a terminal, with names, values and files that try to steer it.
// Whatever the verb says, nothing of what came from outside arrives as anything but visible
// characters. Convention: a command either succeeds or ends with its documented exit code; both
// count, and an internal error (70) never does.
#include <gtest/gtest.h>

#include <cctype>
#include <set>

#include "app/binary.h"
#include "app/verbs_of_manual.h"
#include "base/printable.h"
#include "terminal.h"

namespace tessera::test::hygiene_test {
namespace {

using Words = std::vector<std::string>;

struct Kind {
  std::string name, text;
};
const std::vector<Kind> kinds = {{"esc", "e\033[2Jx"},
                                 {"osc", "o\033]0;owned\007x"},
                                 {"c1", "c\u009b2Jx"},
                                 {"bidi", "b\u202ex\u2066y"},
                                 {"bytes",
                                  "u\xff\x9b"
                                  "2Jx\xc3"}};
const Kind together = {"together", kinds[0].text + kinds[1].text + kinds[2].text + kinds[3].text};

// Shows what a terminal would obey; "" when there is nothing. What the program draws itself is
// taken out first: its line ends, and the codes that redraw a bar and a table.
std::string obeyed(std::string text) {
  for (const std::string& own : {std::string("\r\n"), std::string("\r\033[K")})
    for (std::size_t at = 0; (at = text.find(own, at)) != text.npos;)
      text.replace(at, own.size(), "\n");
  for (std::size_t at = 0; (at = text.find("\033[", at)) != text.npos; ++at) {
    std::size_t end = at + 2;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
    if (text.substr(end, 5) == "A\r\033[J") text.erase(at, end + 5 - at);
  }
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t n = utf8_length(rest);
    if (n == 0 || (rest[0] != '\n' && !is_printable(rest.substr(0, n)))) {
      const std::size_t at = text.size() - rest.size(), from = at < 60 ? 0 : at - 60;
      return printable(text.substr(from, 120));
    }
    rest.remove_prefix(n);
  }
  return "";
}

// A safetensors file with one tensor of that name, and that text among its metadata.
void write_tensor(const fs::path& path, const std::string& name) {
  const std::string quoted = json(name).dump(-1, ' ', false, json::error_handler_t::replace);
  const std::string exact =
      utf8_length(name) && name.find('\xff') == name.npos ? quoted : "\"" + name + "\"";
  std::string header = "{\"__metadata__\":{\"tessera.classes\":" + exact + "},";
  header += exact + ":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
  std::string bytes;
  for (std::size_t i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  write(path, bytes + header + std::string(4, '\0'));
}

// Folders and files of a kind: data with classes and pictures of such names, a run that was trained
// on it, weights, studies.
class Hostile {
 public:
  explicit Hostile(Kind given)
      : kind(std::move(given)),
        folder(scratch() / ("hygiene-" + kind.name)),
        data(folder / "data") {
    const std::string& h = kind.text;
    fs::create_directories(folder);
    for (const std::string label : {"1", "2"})
      for (const std::string picture : {"a", "b", "c"}) {
        fs::create_directories(data / (h + label));
        fs::copy_file(TESSERA_SOURCE_DIR "/tests/golden/disc.png",
                      data / (h + label) / (picture + h + ".png"));
      }
    for (const std::string label : {"1", "2"}) {
      fs::create_directories(folder / "broken" / (h + label));
      for (const std::string picture : {"a", "b"})
        write(folder / "broken" / (h + label) / (picture + h + ".png"), "\x89PNG" + h);
      fs::create_symlink("/", folder / "broken" / (h + label) / ("out" + h));
    }
    fs::create_symlink("run", folder / ("run" + h));  // a run that is sound, by such a name
    write(folder / ("not-a-picture" + h + ".png"), h);
    write_tensor(folder / ("one" + h + ".safetensors"), h);
    write_tensor(folder / ("two" + h + ".safetensors"), h + "2");
    write(folder / (h + ".toml"), "[run]\nname = \"" + h + "\"\n" + h + " = 1\n[" + h + "]\n");
    write(folder / (h + ".json"), "{\"" + h + "\": \"" + h + "\"}");
    write(folder / ("hosts" + h), "no.." + h + " slots=2\n");
    write(folder / ("study" + h + ".toml"),
          "[study]\nname = \"x\"\ntitle = \"" + h + "\"\n[[part]]\nname = \"" + h + "\"\n");
  }

  std::string path(const std::string& before, const std::string& after = "") const {
    return (folder / (before + kind.text + after)).string();
  }

  const Kind kind;
  const fs::path folder, data;
};

const Words tiny_model = {"--model", "vit_micro", "--set", "model.depth=1", "--threads", "1"};

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Command {
  Words words;
  bool succeeds = false;  // must, where the names are UTF-8; otherwise it is a refusal, or either
};

// In the order in which they run: what the first ones leave the others read.
std::vector<Command> commands(const Hostile& on) {
  const std::string &h = on.kind.text, from = "folder:" + on.data.string(), run = on.path("run");
  const Words one_step =
      Words{"--steps", "1", "--global-batch", "2", "--set", "checkpoint.every=1"} + tiny_model;
  const std::string one = on.path("one", ".safetensors"), two = on.path("two", ".safetensors");
  return {
      {Words{"train", "--data", from, "--out", (on.folder / "run").string()} + one_step, true},
      {Words{"train", "--data", from, "--out", (on.folder / "run").string()} + one_step, true},
      {Words{"train", "--data", from, "--out", on.path("another")} + one_step},
      {Words{"train", "--data", "folder:" + on.folder.string() + "/broken", "--out",
             on.path("never")} +
       one_step},
      {Words{"train", "--data", "folder:" + on.path("missing"), "--out", on.path("never")} +
       one_step},
      {Words{"train", "--data", "synthetic", "--out", (on.folder / "never").string(), "--init",
             one} +
       one_step},
      {Words{"train", on.path("", ".toml")}},
      {Words{"train", "--deepspeed", on.path("", ".json"), "--model", "vit_micro"}},
      {Words{"train", "--model", h}},
      {Words{"eval", "--weights", run, "--data", from}, true},
      {Words{"eval", "--weights", one, "--data", from}},
      {Words{"eval", "--weights", run, "--data", h}},
      {Words{"predict", "--weights", run, (on.data / (h + "1") / ("a" + h + ".png")).string()},
       true},
      {Words{"predict", "--weights", run, on.path("not-a-picture", ".png")}},
      {Words{"predict", "--weights", on.path("missing"), on.path("missing", ".png")}},
      {Words{"quantize", "--weights", run, "--data", from, "--samples", "2", "--batch", "2",
             "--out", on.path("small", ".safetensors")},
       true},
      {Words{"quantize", "--weights", one, "--data", from, "--out", on.path("never")}},
      {Words{"verify", one}},
      {Words{"verify", on.path("missing", ".safetensors")}},
      {Words{"bench", "data", "--data", from, "--repeats", "1", "--batch", "2"} + tiny_model},
      {Words{"bench", "infer", "--model", h}},
      {Words{"bench", "layers", "--model", h}},
      {Words{"bench", "train", on.path("missing", ".toml")}},
      {Words{"bench", "ops", "--model", h}},
      {Words{"bench", "gemm", "--filter", h}},
      {Words{"bench", "comm", on.path("", ".toml")}},
      {Words{"bench", "offload", "--model", h}},
      {Words{"bench", h}},
      {Words{"explain", "--run", run, "--no-program"}, true},
      {Words{"explain", "--model", "vit_micro", "--dump-passes", on.path("passes"), "--no-program",
             "--disable", h}},
      {Words{"explain", "--model", "vit_micro", "--set",
             "parallel.schedule=file:" + on.path("missing")}},
      {Words{"study", on.path("study", ".toml")}},
      {Words{"study", on.path("study", ".toml"), "--dry-run"}},
      {Words{"study", on.path("missing", ".toml")}},
      {Words{"report", run}, true},
      {Words{"report", on.path("missing")}},
      {Words{"ckpt", "ls", run}, true},
      {Words{"ckpt", "verify", run}, true},
      {Words{"ckpt", "diff", one, two}},
      {Words{"ckpt", "export", run, "--out", on.path("export")}, true},
      {Words{"ckpt", "export", run, "--out", on.path("graph"), "--onnx"}, true},
      {Words{"data", "stats", from}, true},
      {Words{"data", "verify", "folder:" + on.folder.string() + "/broken"}},
      {Words{"data", "get", h}},
      {Words{"data", "get", "cifar10", "--out", on.path("cifar"), "--url", "ftp://" + h}},
      {Words{"models", "--" + h}},
      {Words{"config", "show", "--model", "vit_micro", "--set", "run.name=" + h}},
      {Words{"config", "check", on.path("", ".toml")}},
      {Words{"config", "keys"}},
      {Words{"doctor", "--hostfile", on.path("hosts")}},
      {Words{"train", "--np", "2", "--hostfile", on.path("hosts"), "--out", on.path("never")} +
       one_step},
      {Words{"version", "--" + h}},
      {Words{"help", h}},
      {Words{"completion", h}},
      {Words{h}},
  };
}

void check(const Kind& kind, bool json) {
  const Hostile on(kind);
  int done = 0;
  for (auto& [words, succeeds] : commands(on)) {
    Words command = words;
    if (json) command.push_back("--json");
    const OnTerminal seen = on_terminal(command);
    std::string shown;
    for (const std::string& word : command) shown += " " + printable(word);
    EXPECT_EQ(obeyed(seen.text), "") << kind.name << ":" << shown;
    const int most = succeeds && kind.name != "bytes" ? 0 : 9;
    EXPECT_TRUE(seen.code >= 0 && seen.code <= most)
        << kind.name << ":" << shown << ": exit code " << seen.code << "\n"
        << printable_lines(seen.text);
    EXPECT_FALSE(seen.text.empty()) << kind.name << ":" << shown << " said nothing";
    ++done;
  }
  EXPECT_EQ(done, 55) << "docs/testing.md counts them";
  fs::remove_all(on.folder);
}

TEST(Hygiene, TheCheckBites) {
  for (const Kind& kind : kinds) EXPECT_NE(obeyed("a " + kind.text), "") << kind.name;
  EXPECT_EQ(obeyed("plain \u00e4\r\n\r\033[K[##--]\r\n\033[12A\r\033[Jtable\r\n"), "");
}

TEST(Hygiene, EveryVerbIsAmongTheCommands) {
  const Hostile on(together);
  std::set<std::string> tried;
  for (const Command& command : commands(on)) {
    tried.insert(command.words[0]);
    if (command.words.size() > 1) tried.insert(command.words[0] + " " + command.words[1]);
  }
  const std::vector<std::string> verbs = manual_verbs();
  EXPECT_GE(verbs.size(), 30u);
  for (const std::string& verb : verbs)
    EXPECT_TRUE(tried.contains(verb)) << "tessera " << verb << " is in no command of this test";
  fs::remove_all(on.folder);
}

TEST(Hygiene, NothingSteersATerminal) { check(together, false); }

// A script parses the exact name, and what it prints is harmless: also the characters that
// JSON would let through.
TEST(Hygiene, DocumentsKeepTheExactNames) {
  const Hostile on(together);
  const Result r = run("data stats --json folder:" + on.data.string());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(obeyed(r.out), "");
  EXPECT_EQ(json::parse(r.out)["train"]["classes"][0]["class"], together.text + "1");
  fs::remove_all(on.folder);
}

TEST(Long, EveryVerbIsHygienic) {
  for (const Kind& kind : kinds)
    for (const bool json : {false, true}) check(kind, json);
}

}  // namespace
}  // namespace tessera::test::hygiene_test
