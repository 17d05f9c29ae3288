// This tests what a run keeps of algorithms that were chosen from libraries: the file is read back
// whole or not at all, ranks with the same card agree, and a run that goes on elsewhere says so.
#include "train/algorithms.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "comm/comm.h"
#include "files/text.h"

namespace tessera::run::algorithms_test {
namespace {

namespace fs = std::filesystem;
using exec::Choice;
using exec::Choices;

Choices table(const std::string& card, const std::string& library = "13.0.0") {
  return Choices({{"card", card}, {"cublasLt", library}}, {{"driver", "13.0"}});
}

struct Folder {
  Folder() : path(fs::temp_directory_path() / ("algorithms_" + std::to_string(::getpid()))) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::string text() const { return files::read_text(path / algorithms_file); }
  fs::path path;
};

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

TEST(Algorithms, AFileIsReadBackAsItWasWritten) {
  Choices a = table("one"), b = table("two");
  a.add("product bf16 1,2,3", {"00ff", 4096});
  a.add("conv \"quoted\"", {"", 0});
  b.add("product bf16 1,2,3", {"engine 3 knobs 1=2", 1});
  const Algorithms read = read_algorithms(to_text({a, b}));
  EXPECT_EQ(read.problem, "");
  ASSERT_EQ(read.tables.size(), 2u);
  EXPECT_EQ(read.tables[0].rows(), a.rows());
  EXPECT_EQ(read.tables[0].beside(), a.beside());
  ASSERT_TRUE(same_made(read.tables, b));
  EXPECT_EQ(same_made(read.tables, b)->rows(), b.rows());
  EXPECT_FALSE(same_made(read.tables, table("one", "13.1.0")));
}

TEST(Algorithms, ADamagedFileIsNotUsedAtAll) {
  Choices a = table("one");
  a.add("key", {"00ff", 1});
  const std::string good = to_text({a});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  ASSERT_EQ(read_algorithms(good).problem, "");
  const std::string bad[] = {"",
                             "[]",
                             "7",
                             good.substr(0, good.size() / 2),
                             with("\"version\": 1", "\"version\": 2"),
                             with("\"version\": 1", "\"version\": \"1\""),
                             with("\"tables\"", "\"table\""),
                             with("\"00ff\"", "17"),
                             with("\"workspace\": 1", "\"workspace\": -1"),
                             with("\"workspace\": 1", "\"workspace\": 1e300"),
                             with("\"workspace\": 1", "\"workspace\": 18446744073709551615"),
                             with("\"workspace\": 1", "\"other\": 1"),
                             with("\"for\": \"key\"", "\"for\": null"),
                             with("\"one\"", "[1]"),
                             with("key", std::string(2000, 'k')),
                             with("00ff", std::string(5000, 'f')),
                             std::string(100000, '[')};
  for (const std::string& text : bad) {
    const Algorithms read = read_algorithms(text);
    EXPECT_NE(read.problem, "") << text.substr(0, 200);
    EXPECT_TRUE(read.tables.empty());
  }
}

TEST(Algorithms, RanksWithTheSameCardTakeWhatTheFirstOfThemChose) {
  comm::run_local(4, [](comm::Comm& world) {
    const Ranks ranks(&world);
    const int r = world.rank();
    // Ranks 0 and 3 have one card, rank 1 another, rank 2 none that chooses.
    Choices own = table(r == 1 ? "other" : "one");
    own.add("all", {"chosen by " + std::to_string(r), 0});
    own.add("of rank " + std::to_string(r), {"alone", r});
    Choices older = table("older");
    older.add("all", {"long ago", 0});
    const std::vector<Choices> all =
        agree_on_choices(ranks, r == 2 ? nullptr : &own, {older, table("one")});
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0].rows(), older.rows());  // what nobody has now is not lost
    if (r == 2) return;
    EXPECT_EQ(own.find("all")->algorithm, r == 1 ? "chosen by 1" : "chosen by 0");
    EXPECT_EQ(own.rows().size(), r == 1 ? 2u : 3u);
    EXPECT_EQ(own.rows(), same_made(all, own)->rows());
    if (r != 1) {
      EXPECT_TRUE(own.find("of rank 0") && own.find("of rank 3"));
    }
  });
}

// Stands for a library: what is not in the table is chosen, and counted.
struct Library {
  explicit Library(Choices made) : choices(std::move(made)) {}
  void choose() {
    for (const char* key : {"first", "second"})
      if (!choices.find(key)) choices.add(key, {"choice " + std::to_string(++chosen), 8});
  }
  std::vector<std::string> settle(const fs::path& folder, bool resumed) {
    std::vector<std::string> notes;
    settle_algorithms(
        &choices, [&] { choose(); }, Ranks(nullptr), folder, resumed, notes);
    return notes;
  }
  Choices choices;
  int chosen = 0;
};

TEST(Algorithms, ARunThatGoesOnTakesTheSameAgain) {
  const Folder folder;
  Library first(table("one"));
  EXPECT_TRUE(first.settle(folder.path, false).empty());
  EXPECT_EQ(first.chosen, 2);

  Library again(table("one"));
  again.chosen = 100;  // would show in what it chooses
  EXPECT_TRUE(again.settle(folder.path, true).empty());
  EXPECT_EQ(again.chosen, 100);
  EXPECT_EQ(again.choices.rows(), first.choices.rows());

  Library fresh(table("one"));
  fresh.chosen = 100;
  EXPECT_TRUE(fresh.settle(folder.path, false).empty());  // a new run takes nothing from an old one
  EXPECT_EQ(fresh.choices.find("first")->algorithm, "choice 101");
}

TEST(Algorithms, AnotherCardOrVersionSaysThatBitsWillDiffer) {
  const Folder folder;
  Library first(table("one"));
  first.settle(folder.path, false);
  Library newer(table("one", "13.1.0"));
  const std::vector<std::string> notes = newer.settle(folder.path, true);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(has(notes[0], "bits will differ")) << notes[0];
  EXPECT_TRUE(has(notes[0], "cublasLt 13.0.0")) << notes[0];
  EXPECT_TRUE(has(notes[0], "cublasLt 13.1.0")) << notes[0];
  EXPECT_EQ(newer.chosen, 2);
  // Both tables are kept: whoever goes on with the first card has its algorithms.
  EXPECT_EQ(read_algorithms(folder.text()).tables.size(), 2u);
  Library back(table("one"));
  EXPECT_TRUE(back.settle(folder.path, true).empty());
  EXPECT_EQ(back.chosen, 0);

  // A device that chooses nothing goes on with it, and one that does goes on without a record.
  std::vector<std::string> said;
  settle_algorithms(
      nullptr, [] {}, Ranks(nullptr), folder.path, true, said);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(has(said[0], "bits will differ")) << said[0];
  EXPECT_EQ(read_algorithms(folder.text()).tables.size(), 2u);
  const Folder empty;
  Library without(table("one"));
  const std::vector<std::string> unrecorded = without.settle(empty.path, true);
  ASSERT_EQ(unrecorded.size(), 1u);
  EXPECT_TRUE(has(unrecorded[0], "no record")) << unrecorded[0];
}

TEST(Algorithms, ADamagedFileIsSetAsideWithANote) {
  const Folder folder;
  files::write_atomically(folder.path / algorithms_file, "{\"version\": 1, \"tables\": 3}");
  Library library(table("one"));
  const std::vector<std::string> notes = library.settle(folder.path, true);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(has(notes[0], "cannot be used")) << notes[0];
  EXPECT_TRUE(has(notes[0], "'tables'")) << notes[0];
  EXPECT_TRUE(fs::exists(folder.path / "algorithms.old.json"));
  EXPECT_EQ(read_algorithms(folder.text()).tables.size(), 1u);
}

// A note promises that the file is kept: it is not written over.
TEST(Algorithms, ADamagedFileThatCannotBeSetAsideStays) {
  const Folder folder;
  const std::string damaged = "{\"version\": 1, \"tables\": 3}";
  files::write_atomically(folder.path / algorithms_file, damaged);
  fs::create_directories(folder.path / "algorithms.old.json" / "in the way");
  Library library(table("one"));
  try {
    library.settle(folder.path, true);
    ADD_FAILURE() << "it was written over";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::disk) << error.what();
    EXPECT_TRUE(has(error.what(), "algorithms.old.json")) << error.what();
  }
  EXPECT_EQ(folder.text(), damaged);
}

TEST(Algorithms, WithoutChoicesThereIsNoFile) {
  const Folder folder;
  for (const bool resumed : {false, true}) {
    std::vector<std::string> notes;
    settle_algorithms(
        nullptr, [] { FAIL(); }, Ranks(nullptr), folder.path, resumed, notes);
    EXPECT_TRUE(notes.empty());
  }
  EXPECT_FALSE(fs::exists(folder.path / algorithms_file));
}

TEST(Algorithms, ARowThatTheLibraryRefusesIsSaid) {
  const Folder folder;
  Library(table("one")).settle(folder.path, false);
  Library library(table("one"));
  std::vector<std::string> notes;
  const auto choose = [&] {
    library.choices.refuse("first");
    library.choose();
  };
  settle_algorithms(&library.choices, choose, Ranks(nullptr), folder.path, true, notes);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(has(notes[0], "1 of the recorded algorithms")) << notes[0];
}

}  // namespace
}  // namespace tessera::run::algorithms_test
