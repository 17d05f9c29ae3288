// Verbs that read a run's folder: while a training writes into it and keeps one checkpoint, with
// pages that cannot be had, and with each of their calls failing in turn. Convention: they never
// change the folder; exit code 0 means the words of an undisturbed reader, or a note.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <regex>
#include <set>
#include <thread>

#include "data/encoders.h"
#include "faults/sweep.h"

namespace tessera::test::faults::readers_test {
namespace {

// A picture for predict.
fs::path picture() {
  const fs::path path = scratch_folder() / "picture.jpg";
  const data::Image image = smooth_image(32, 32, 3);
  const Bytes bytes = encode_jpeg(image, 90);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  return path;
}

std::vector<std::string> readers_of(const fs::path& run, const fs::path& folder) {
  const std::string at = run.string();
  return {"ckpt verify " + at,
          "predict --threads 1 --weights " + at + " " + picture().string(),
          "eval --threads 1 --data synthetic --test-size 8 --weights " + at,
          "ckpt ls " + at,
          "ckpt export " + at + " --out " + (folder / "exported").string(),
          "report " + at + " --out " + (folder / "page").string()};
}

// A training that saves after every step and keeps one checkpoint; it goes on until it is stopped.
class Writer {
 public:
  explicit Writer(const fs::path& folder)
      : run_(folder / "run"),
        process_(
            "train --model vit_micro --set model.depth=1 --data synthetic --global-batch 8 "
            "--threads 1 --steps 1000000 --quiet "
            "--set data.train_size=8 --set data.test_size=8 --set run.eval_every=0 --set "
            "checkpoint.every=1 --set checkpoint.keep=1 "
            "--set checkpoint.keep_best=false --out " +
                run_.string(),
            folder / "writer.log") {
    while (process_.running() && steps_in(run_).empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  int stop() {
    process_.signal(SIGTERM);
    return process_.wait(240);
  }

 private:
  fs::path run_;
  Started process_;
};

// Each reader `rounds` times as it is, and once for each of its first `slow` files held up between
// looking for a checkpoint and reading it.
void read_beside_a_writer(int rounds, int slow) {
  const fs::path folder = folder_for("beside"), run = folder / "run";
  Writer writer(folder);
  int reads = 0, k = 0;
  for (const std::string& command : readers_of(run, folder)) {
    for (int n = 1 - rounds; n <= slow; ++n) {
      if (!in_shard(k++)) continue;
      ++reads;
      const Fault fault{.call = Call::open,
                        .n = std::max(n, 0),
                        .action = "slow",
                        .value = 300,
                        .only = "/ckpt/"};
      const Ended ended = run_with(fault, command, run, folder / "reader");
      EXPECT_EQ(ended.code, 0) << command << "\n" << fault.words() << "\n" << ended.said;
      EXPECT_EQ(ended.said.find("--fresh"), ended.said.npos) << ended.said;
      fs::remove_all(folder / "exported");
    }
  }
  EXPECT_EQ(writer.stop(), 75) << text_of(folder / "writer.log");
  print_counts("readers beside a training", {{"cases", reads}});
}

TEST(Readers, ReadersBesideATrainingFindACheckpoint) { read_beside_a_writer(0, 2); }
TEST(Long, ReadersBesideATrainingFindACheckpoint) { read_beside_a_writer(40, 4); }

// Reading fails in files of the run whose path contains `only`, as from a sector that is damaged.
Ended without_bytes(const std::string& command, const fs::path& run, const std::string& only,
                    const fs::path& scratch) {
  const Fault read{.call = Call::read, .n = 1, .for_ever = true, .value = EIO, .only = only};
  return run_with(read, command, run, scratch);
}

TEST(Readers, ACheckpointThatCannotBeReadIsPassedOverByName) {
  const fs::path folder = folder_for("pages", true), run = folder / "run";
  for (const std::string& command : readers_of(run, folder)) {
    if (command.starts_with("report") || command.starts_with("ckpt ls"))
      continue;  // they read no tensors
    const Ended ended = without_bytes(command, run, "step-4/rank-0", folder / "reader");
    EXPECT_GT(ended.fired, 0) << command;
    EXPECT_EQ(ended.code, command.starts_with("ckpt verify") ? 4 : 0) << command << "\n"
                                                                      << ended.said;
    EXPECT_NE(ended.said.find("step-4"), ended.said.npos) << command << "\n" << ended.said;
  }
  const Ended none = without_bytes(one_rank().command(run), run, "/rank-0", folder / "none");
  EXPECT_GT(none.fired, 0);
  EXPECT_EQ(none.code, 4)
      << none.said;  // nothing can be used, and a run never starts over by itself
  EXPECT_EQ(steps_in(run), (std::vector<std::int64_t>{2, 4}));
  const Ended older =
      without_bytes(one_rank().command(run), run, "step-4/rank-0", folder / "older");
  EXPECT_GT(older.fired, 0);
  EXPECT_EQ(older.code, 0) << older.said;
  EXPECT_NE(older.said.find("step-4"), older.said.npos) << older.said;
  EXPECT_NE(older.said.find("resumed from step 2"), older.said.npos) << older.said;
  EXPECT_EQ(numbers_of(run), one_rank().numbers);
  EXPECT_TRUE(text_of(run / "weights.safetensors") ==
              text_of(one_rank().whole / "weights.safetensors"));
}

// Names and sizes of everything below a folder.
std::set<std::string> content_of(const fs::path& folder) {
  std::set<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    out.insert(entry.path().string() +
               (entry.is_regular_file() ? " " + std::to_string(entry.file_size()) : ""));
  return out;
}

std::string without_times(const std::string& said) {
  return std::regex_replace(said, std::regex("\\([0-9.]+ s\\)"), "");
}

// The lists of `ckpt verify` and `ckpt ls` have a line for each checkpoint.
bool lists_damage(const std::string& said) {
  return said.find("BAD: ") != said.npos || said.find("NO: ") != said.npos;
}

// A page is made of what there is, and says so itself where a trace could not be read.
bool tells_of_traces(const std::string& page) {
  return page.find("Not every trace could be read") != page.npos;
}

// Each call of one reader fails, once and for ever; returns the number of cases.
int sweep_reader(const std::string& command, const fs::path& run, const fs::path& folder) {
  const auto clean = [&] {
    fs::remove_all(folder / "exported");
    fs::remove_all(folder / "page");
  };
  clean();
  const Ended whole = run_with({}, command, run, folder / "reader");
  EXPECT_EQ(whole.code, 0) << command << "\n" << whole.said;
  const fs::path page = folder / "page/report.html";
  const std::string sound_page = text_of(page);
  const std::set<std::string> before = content_of(run);
  int cases = 0, k = 0;
  for (const Call call :
       {Call::open, Call::opendir, Call::readdir, Call::read, Call::mmap, Call::stat, Call::close})
    for (std::int64_t n = 1; n <= whole.seen[0][static_cast<std::size_t>(call)]; ++n)
      for (const bool for_ever : {false, true}) {
        if (!in_shard(k++)) continue;
        const Fault fault{
            .call = call, .n = n, .for_ever = for_ever, .value = n % 2 == 0 ? EIO : ESTALE};
        clean();
        const Ended ended = run_with(fault, command, run, folder / "reader");
        const std::string what =
            command + "\n" + fault.words() + " (" + ended.first + ")\n" + ended.said;
        cases += ended.fired > 0;
        EXPECT_TRUE((std::set<int>{0, 2, 3, 4, 9}.contains(ended.code)))
            << "exit code " << ended.code << ": " << what;
        if (ended.code == 0 && without_times(ended.said) == without_times(whole.said) &&
            text_of(page) == sound_page)
          continue;
        EXPECT_TRUE(names_a_file(ended.said, run) || lists_damage(ended.said) ||
                    tells_of_traces(text_of(page)))
            << "names no file: " << what;
      }
  EXPECT_EQ(content_of(run), before) << command;
  return cases;
}

TEST(Long, EveryCallOfAReader) {
  const fs::path folder = folder_for("read"), run = folder / "run";
  fs::copy(one_rank().whole, run, fs::copy_options::recursive);
  int cases = 0;
  for (const std::string& command : readers_of(run, folder))
    cases += sweep_reader(command, run, folder);
  print_counts("readers", {{"faults", cases}});
}

}  // namespace
}  // namespace tessera::test::faults::readers_test
