// The face of the command line: help in 80 columns, completions, the manual, names that people know
// from elsewhere, and a finished run that gets more epochs.
#include <gtest/gtest.h>

#include "app/binary.h"
#include "app/verbs_of_manual.h"
#include "terminal.h"

namespace tessera::test::help_test {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(Help, FitsEightyColumnsForEveryVerb) {
  const std::string all = run("help").out;
  EXPECT_TRUE(has(all, "completion")) << all;
  std::vector<std::string> verbs = manual_verbs();
  EXPECT_GE(verbs.size(), 30u);
  for (const char* group : {"", "bench", "ckpt", "data", "config"}) verbs.push_back(group);
  for (const std::string& verb : verbs) {
    const Result r = run("help " + verb);
    EXPECT_EQ(r.code, 0) << verb << r.err;
    std::istringstream lines(r.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  }
  EXPECT_TRUE(has(run("help bench comm").out, "--machines"));
  EXPECT_FALSE(has(run("help bench train").out, "--machines")) << "modes have flags of their own";
  EXPECT_FALSE(has(run("help bench infer").out, "--epochs"));
  EXPECT_TRUE(has(run("help bench comm").out, "all_reduce")) << "with its default";
  const Result wrong = run("help trian");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(has(wrong.err, "did you mean train?")) << wrong.err;
}

TEST(Help, TheManualAndThePageAreMadeFromTheTable) {
  const std::string page = read(fs::path(TESSERA_SOURCE_DIR) / "docs/cli.md");
  EXPECT_TRUE(has(page, run("help --markdown").out))
      << "docs/cli.md is stale: put the output of `tessera help --markdown` between its marks";
  const std::string man = run("help --man").out;
  for (const char* part :
       {".TH TESSERA 1", ".SS tessera ckpt export RUN", "\\-\\-global\\-batch", ".SH EXIT STATUS",
        ".B 1\nverify or ckpt diff found a difference; a run of a study failed; doctor found",
        ".B 8\nout of memory, or of threads\n", ".B 128 + n\n"})
    EXPECT_TRUE(has(man, part)) << part;
}

TEST(Help, CompletionsAreScriptsThatShellsTake) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Result r = run(std::string("completion ") + shell);
    EXPECT_EQ(r.code, 0);
    for (const char* word : {"train", "export", "global-batch", "elsewhere"})
      EXPECT_TRUE(has(r.out, word)) << shell << ": " << word;
  }
  EXPECT_EQ(run("completion tcsh").code, 2);
}

// Gives what a shell prints that runs this script, whose argument is the file with its completions;
// nothing where it is not installed.
std::string shell_says(const std::string& shell, const std::string& script) {
  if (std::system(("command -v " + shell + " >/dev/null").c_str()) != 0) return "";
  const fs::path ours = scratch() / ("ours." + shell), file = scratch() / ("asks." + shell);
  write(ours, run("completion " + shell).out);
  write(file, script);
  const char* alone = shell == "zsh" ? " -f " : shell == "fish" ? " --no-config " : " ";
  std::FILE* pipe =
      ::popen((shell + alone + file.string() + " " + ours.string() + " 2>&1").c_str(), "r");
  if (!pipe) return "";
  std::string out;
  char text[4096];
  for (std::size_t n; (n = std::fread(text, 1, sizeof(text), pipe)) > 0;) out.append(text, n);
  ::pclose(pipe);
  return out;
}

TEST(Help, BashCompletes) {
  EXPECT_EQ(shell_says("bash", R"(source $1
COMP_WORDS=(tessera ckpt e) COMP_CWORD=2; _tessera; echo "${COMPREPLY[@]}"
COMP_WORDS=(tessera report --format '') COMP_CWORD=3; _tessera; echo "${COMPREPLY[@]}"
)"),
            "export\nhtml md\n");
}

// The choices of zsh are printed by a program that it has to find in PATH.
TEST(Help, ZshCompletes) {
  const std::string said = shell_says("zsh", R"(ours=$1
compadd() { shift; env printf '%s ' "$@"; env echo }
_files() { }
ask() { words=("$@") CURRENT=$#; source $ours }
ask tessera ckpt e
ask tessera report --format ''
)");
  if (said.empty()) GTEST_SKIP() << "zsh is not installed";
  EXPECT_TRUE(has(said, "export ") && has(said, "\nhtml md \n")) << said;
  EXPECT_FALSE(has(said, "not found")) << said;
}

TEST(Help, FishCompletes) {
  const std::string said = shell_says("fish", R"(source $argv[1]
cd (mktemp -d)  # files are offered, too
for line in "tessera ckpt e" "tessera report --format " "tessera bench data g" \
    "tessera help train --mod" "tessera bench train --global" "tessera train --mod"
  echo "<$line>"
  complete -C $line
end
)");
  if (said.empty()) GTEST_SKIP() << "fish is not installed";
  EXPECT_TRUE(has(said, "<tessera ckpt e>\nexport\t")) << said;
  EXPECT_TRUE(has(said, "\nhtml\t") && has(said, "\nmd\t")) << said;
  EXPECT_TRUE(has(said, "<tessera bench data g>\n<tessera help")) << "no verb of data: " << said;
  EXPECT_TRUE(has(said, "<tessera help train --mod>\n<")) << "no flag of train: " << said;
  EXPECT_TRUE(has(said, "<tessera bench train --global>\n--global-batch\t")) << said;
  EXPECT_TRUE(has(said, "<tessera train --mod>\n--model\tmodel preset (`tessera models`")) << said;
}

TEST(Help, NamesFromElsewhereAreUnderstoodOrAnswered) {
  const Result r =
      run("config show --model vit_base_patch16_224 --batch-size 32 "
          "--learning-rate 0.5 --dtype fp16 --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const json shown = json::parse(r.out);
  EXPECT_EQ(shown["model"]["name"], "vit_b_16");
  EXPECT_EQ(shown["batch"]["global"], 32);
  EXPECT_EQ(shown["optim"]["lr"], 0.5);
  EXPECT_EQ(shown["precision"]["dtype"], "f16");
  const Result foreign = run("train --model vit_micro --fp16 --num-epochs 3 --resume x");
  EXPECT_EQ(foreign.code, 2);
  for (const char* part : {"--fp16 (here it is --dtype f16)", "--num-epochs (here it is --epochs)",
                           "--resume (here it is nothing: the same command goes on"})
    EXPECT_TRUE(has(foreign.err, part)) << foreign.err;
}

TEST(Longer, AFinishedRunGoesOnWithMoreEpochs) {
  const fs::path out = scratch() / "longer";
  const std::string command = "train" + tiny + "--quiet --out " + out.string() + " --epochs ";
  ASSERT_EQ(run(command + "1").code, 0);
  const json first = json::parse(read(out / "summary.json"));
  EXPECT_GT(first["params"].get<std::int64_t>(), 1000);
  EXPECT_EQ(first["finished"].get<std::string>().size(), 20u);
  const json said = json::parse(read(out / "predictions.json"));
  EXPECT_EQ(said["samples"].size(), 24u);
  EXPECT_EQ(said["confusion"].size(), said["classes"].size() * said["classes"].size());
  ASSERT_EQ(run(command + "3").code, 0);
  EXPECT_EQ(json::parse(read(out / "summary.json"))["epochs"].size(), 3u);
  EXPECT_EQ(run(command + "2").code, 2) << "fewer are another run";
  const Result page = run("report " + out.string());
  ASSERT_EQ(page.code, 0) << page.err;
  EXPECT_TRUE(has(read(out / "report.html"), "Sample predictions"));
}

void expect_to_fit(const OnTerminal& seen) {
  EXPECT_EQ(seen.code, 0) << seen.text;
  for (const std::string& line : lines_on_terminal(seen.text)) {
    const auto columns = std::count_if(line.begin(), line.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    });
    EXPECT_LE(columns, 80) << line;
  }
}

// On a terminal, also of several ranks and during evaluations: a bar, and lines that fit.
TEST(Longer, TheBarIsThereWithSeveralRanksAndDuringEvaluations) {
  (void)has_mpirun();
  const OnTerminal seen = on_terminal(
      {"train", "--model", "vit_micro", "--set", "model.depth=1", "--set", "data.train_size=96",
       "--set", "data.test_size=256", "--global-batch", "32", "--threads", "1", "--epochs", "2",
       "--np", "2", "--out", (scratch() / "bar").string()},
      {80, false});
  expect_to_fit(seen);
  EXPECT_TRUE(has(seen.text, "50%  eta ") && has(seen.text, "elapsed  eval 100%")) << seen.text;
  expect_to_fit(on_terminal({"ckpt", "ls", (scratch() / "bar").string()}, {80, false}));
}

TEST(Longer, SentencesFitATerminalOfEightyColumns) {
  const std::vector<std::string> small = {"--model", "vit_micro", "--threads", "1"};
  for (std::vector<std::string> words :
       {std::vector<std::string>{"models"},
        {"bench", "infer", "--repeats", "1"},
        {"bench", "train", "--repeats", "1", "--np", "2", "--comm", "local"},
        {"bench", "data", "--data", "synthetic"},
        {"explain", "--no-program", "--dp", "2", "--tp", "2", "--zero", "3", "--global-batch", "8"},
        {"explain", "--no-program", "--dp", "3", "--accumulate", "4", "--global-batch", "20"}}) {
    if (words[0] != "models") words.insert(words.end(), small.begin(), small.end());
    expect_to_fit(on_terminal(words, {80, false}));
  }
}

// A terminal has colours unless it is told otherwise; the same note without them is plain.
TEST(Longer, NotesAreColouredWhereATerminalHasColours) {
  const std::vector<std::string> words = {"config",    "show",  "--model",
                                          "vit_micro", "--set", "precision.loss_scale=4"};
  const OnTerminal plain = on_terminal(words), coloured = on_terminal(words, {200, true});
  EXPECT_TRUE(has(plain.text, "note: ") && !has(plain.text, "\033[")) << plain.text;
  EXPECT_TRUE(has(coloured.text, "\033[36mnote:\033[0m ")) << coloured.text;
}

TEST(Longer, AQuantisedModelIsScoredWithABar) {
  const std::string run_folder = (scratch() / "quantised").string();
  ASSERT_EQ(run("train" + tiny + "--quiet --steps 1 --out " + run_folder).code, 0);
  const OnTerminal seen = on_terminal(
      {"quantize", "--weights", run_folder, "--data", "synthetic", "--samples", "16", "--dtype",
       "int8", "--eval", "synthetic", "--out", run_folder + "/q.safetensors"},
      {80, false});
  expect_to_fit(seen);
  EXPECT_TRUE(has(seen.text, "100%  eta ")) << seen.text;
}

// A disk of one megabyte, which a checkpoint of the model does not fit on.
TEST(Longer, ACheckpointThatWillNotFitIsSaidBeforeTheFirstStep) {
  const std::string folder = (scratch() / "small").string();
  fs::create_directories(folder);
  if (std::system("unshare -rm true 2>/dev/null") != 0)
    GTEST_SKIP() << "this machine lets nobody mount a small disk (unshare -rm)";
  write(scratch() / "small.sh", "mount -t tmpfs -o size=1m tmpfs " + folder +
                                    " || exit 99\n" TESSERA_BINARY
                                    " train --model vit_micro --steps 4 --threads 1 --out " +
                                    folder + "/run 2>" + (scratch() / "small.txt").string() + "\n");
  const int status = std::system(("unshare -rm sh " + (scratch() / "small.sh").string()).c_str());
  const std::string said = read(scratch() / "small.txt");
  EXPECT_EQ(WEXITSTATUS(status), 9) << said;
  EXPECT_TRUE(has(said, "a checkpoint of this training takes ") && has(said, " MB are free"))
      << said;
  EXPECT_FALSE(has(said, "step ")) << said;
}

}  // namespace
}  // namespace tessera::test::help_test
