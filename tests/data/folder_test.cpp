// Image folders: where classes and splits are, which files count, what is refused, and that splits
// are stratified, stable and disjoint.
#include "data/folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <set>

#include "data/class_folders.h"
#include "data/decode.h"
#include "data/fixtures.h"
#include "files/scratch.h"

namespace tessera::data::folder_test {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::Scratch;
using test::write_bytes;
using test::write_class;

std::set<std::string> names(const Dataset& dataset) {
  std::set<std::string> out;
  for (std::int64_t i = 0; i < dataset.size(); ++i) out.insert(dataset.sample_name(i));
  return out;
}

std::map<int, int> counts(const Dataset& dataset, std::int64_t first = -1) {
  std::map<int, int> out;
  for (std::int64_t i = 0; i < (first < 0 ? dataset.size() : first); ++i) ++out[dataset.label(i)];
  return out;
}

TEST(Folder, OwnSplitsAndEveryImageIsItself) {
  const Scratch scratch;
  write_class(scratch / "train/cat", 6, 9, 14);
  write_class(scratch / "train/ant", 4, 30, 20);
  write_class(scratch / "val/cat", 2);
  write_class(scratch / "val/ant", 1);
  const auto train = image_folder(scratch.folder(), Split::train, {}),
             val = image_folder(scratch.folder(), Split::test, {});
  EXPECT_EQ(train->class_names(), (std::vector<std::string>{"ant", "cat"}));
  EXPECT_EQ(counts(*train), (std::map<int, int>{{0, 4}, {1, 6}}));
  EXPECT_EQ(counts(*val), (std::map<int, int>{{0, 1}, {1, 2}}));
  EXPECT_EQ(train->height(), 0);
  for (std::int64_t i = 0; i < train->size(); ++i) {
    Image image;
    train->get(i, {}, image);
    const fs::path path = train->sample_name(i);
    EXPECT_EQ(image.h, train->label(i) ? 9 : 30);
    EXPECT_EQ(image.c, 3);
    EXPECT_NEAR(image.pixels[5], 10 + std::stoi(path.stem().string()), 1) << path;
    EXPECT_EQ(path.parent_path().filename(),
              train->class_names()[static_cast<std::size_t>(train->label(i))]);
  }
  fs::rename(scratch / "val", scratch / "test");
  EXPECT_EQ(image_folder(scratch.folder(), Split::test, {})->size(), 3);
  fs::remove_all(scratch / "test/ant");  // a class that is not tested
  EXPECT_EQ(counts(*image_folder(scratch.folder(), Split::test, {})), (std::map<int, int>{{1, 2}}));
}

// A class that cannot be looked at is no reason to train without it.
TEST(Folder, AClassBehindALockedDoorIsSaid) {
  const Scratch scratch;
  for (const char* name : {"ant", "cat", "elsewhere/dog"}) write_class(scratch / name, 2);
  const fs::path closed = scratch / "elsewhere", set = scratch / "set";
  fs::create_directories(set);
  for (const char* name : {"ant", "cat"}) fs::rename(scratch / name, set / name);
  fs::create_directory_symlink(closed / "dog", set / "dog");
  EXPECT_EQ(folders_in(set), (std::vector<std::string>{"ant", "cat", "dog"}));
  fs::permissions(scratch.folder(), fs::perms::all);
  fs::permissions(closed, fs::perms::none);
  const bool root = ::geteuid() == 0;  // who may look everywhere: be nobody meanwhile
  ASSERT_TRUE(!root || ::seteuid(65534) == 0);
  const Error error = error_of([&] { folders_in(set); });
  ASSERT_TRUE(!root || ::seteuid(0) == 0);
  fs::permissions(closed, fs::perms::owner_all);
  EXPECT_EQ(error.kind, ErrorKind::data) << error.what();
  EXPECT_NE(error.where.find("dog"), std::string::npos) << error.what();
}

TEST(Folder, ChannelsAreConverted) {
  const Scratch scratch;
  for (const char* name : {"a", "b"})
    for (int c = 1; c <= 4; ++c) {
      fs::create_directories(scratch / name);
      write_png(scratch / name / (std::to_string(c) + ".png"), test::smooth_image(5, 4, c));
    }
  for (int channels = 1; channels <= 4; ++channels) {
    const auto set = image_folder(scratch.folder(), Split::train, {channels, 0.0, 0});
    ASSERT_EQ(set->size(), 8);
    Image image;
    for (std::int64_t i = 0; i < 8; ++i) {
      set->get(i, {}, image);
      EXPECT_EQ(image.c, channels);
      EXPECT_EQ(image.pixels.size(), static_cast<std::size_t>(20 * channels));
    }
  }
  EXPECT_EQ(error_of([&] {
              image_folder(scratch.folder(), Split::train, {5, 0.1, 0});
            }).kind,
            ErrorKind::usage);
}

TEST(Folder, ThePartForTestingIsStratifiedAndFollowsFromSeedAndNames) {
  const Scratch scratch;
  write_class(scratch / "large", 60);
  write_class(scratch / "small", 20);
  write_class(scratch / "tiny", 2);
  const auto open = [&](Split split, double fraction, std::uint64_t seed) {
    return image_folder(scratch.folder(), split, {3, fraction, seed});
  };
  const auto train = open(Split::train, 0.1, 1), held = open(Split::test, 0.1, 1);
  EXPECT_EQ(counts(*held), (std::map<int, int>{{0, 6}, {1, 2}, {2, 1}}));
  EXPECT_EQ(counts(*train), (std::map<int, int>{{0, 54}, {1, 18}, {2, 1}}));
  std::set<std::string> all = names(*train);
  for (const std::string& name : names(*held)) EXPECT_TRUE(all.insert(name).second) << name;
  EXPECT_EQ(all.size(), 82u);
  EXPECT_EQ(names(*held), names(*open(Split::test, 0.1, 1)));
  EXPECT_NE(names(*held), names(*open(Split::test, 0.1, 2)));
  EXPECT_EQ(open(Split::test, 0.0, 1)->size(), 0);
  // Another file changes little: no more than one image of its class changes sides.
  const std::set<std::string> before = names(*held);
  write_bytes(scratch / "large/new.png", test::read_bytes(scratch / "large/1.png"));
  int moved = 0;
  for (const std::string& name : names(*open(Split::test, 0.1, 1))) moved += !before.contains(name);
  EXPECT_LE(moved, 1);
  // Any stretch of indices holds the classes in proportion.
  EXPECT_NEAR(counts(*train, 20)[0], 15, 1);
  EXPECT_NEAR(counts(*train, 20)[1], 5, 1);
}

TEST(Folder, OddFilesAreCountedAndLoopsEnd) {
  const Scratch scratch;
  write_class(scratch / "a", 3);
  write_class(scratch / "b/deep/er", 3);
  write_bytes(scratch / "a/notes.txt", "text");
  write_bytes(scratch / "a/.hidden.jpg", "x");
  write_bytes(scratch / ".git/config", "x");
  fs::create_symlink("nowhere.jpg", scratch / "a/dangling.jpg");
  fs::create_directory_symlink(scratch.folder() / "b", scratch / "b/deep/loop");
  fs::create_symlink(scratch.folder() / "a/0.jpg", scratch / "b/link.jpg");
  ASSERT_EQ(::mkfifo((scratch / "a/pipe.jpg").c_str(), 0600), 0);
  const auto set = image_folder(scratch.folder(), Split::train, {3, 0.0, 0});
  EXPECT_EQ(counts(*set), (std::map<int, int>{{0, 3}, {1, 4}}));
  EXPECT_EQ(set->ignored(), 5);
}

TEST(Folder, LinksThatLeadOutsideAreNamed) {
  const Scratch scratch, elsewhere;
  write_class(scratch / "a", 3);
  write_class(scratch / "b", 3);
  write_class(elsewhere / "c", 3);
  const auto outside = [&] {
    return image_folder(scratch.folder(), Split::train, {3, 0.0, 0})->outside();
  };
  fs::create_symlink("../a/0.jpg", scratch / "b/inside.jpg");
  EXPECT_EQ(outside(), "");
  fs::create_symlink(elsewhere.folder() / "c/0.jpg", scratch / "b/out.jpg");
  EXPECT_EQ(outside(), (scratch / "b/out.jpg").string() + " -> " +
                           fs::canonical(elsewhere / "c/0.jpg").string());
  fs::remove(scratch / "b/out.jpg");
  fs::create_directory_symlink(elsewhere.folder() / "c", scratch / "c");  // a whole class
  EXPECT_EQ(outside(), (scratch / "c").string() + " -> " + fs::canonical(elsewhere / "c").string());
}

TEST(Folder, RefusalsNameTheClassAndTheForm) {
  const auto says = [](const fs::path& dir, Split split = Split::train) {
    const Error error = error_of([&] { image_folder(dir, split, {}); });
    EXPECT_EQ(error.kind, ErrorKind::data);
    return std::string(error.what());
  };
  const auto has = [](const std::string& text, const char* word) {
    EXPECT_NE(text.find(word), std::string::npos) << text;
  };
  const Scratch scratch;
  has(says(scratch / "none"), "no such folder");
  has(says(scratch.folder()), "found no folders");
  write_class(scratch / "only", 2);
  has(says(scratch.folder()), "at least two classes");
  fs::create_directories(scratch / "empty");
  fs::create_directories(scratch / "void");
  has(says(scratch.folder()), "empty, void");
  const Scratch other;
  write_class(other / "val/a", 1);
  write_class(other / "b", 1);
  has(says(other.folder()), "no train/");
  write_class(other / "train/a", 1);
  write_class(other / "train/c", 1);
  write_class(other / "val/zebra", 1);
  has(says(other.folder(), Split::test), "zebra");
  write_class(other / "val/okapi", 1);  // all that is wrong, not only the first
  fs::create_directories(other / "val/c");
  for (const char* part :
       {"'okapi', 'zebra' are not among the 2 training classes", "in the class c"})
    has(says(other.folder(), Split::test), part);
  fs::create_directories(other / "train/b\xff");  // of both halves, whichever is asked for
  for (const Split split : {Split::train, Split::test})
    for (const char* part : {"class 'b\\xff' is not UTF-8", "in the class b\\xff",
                             "'okapi', 'zebra' are not among the 3", "in the class c"})
      has(says(other.folder(), split), part);
  write_bytes(other / "file", "x");
  has(says(other / "file"), "found a file");
}

// A path at which no folder can be has no classes, which is no error of the disk; whoever wants the
// images is told why.
TEST(Folder, APathThatCannotExistHasNoClasses) {
  const Scratch scratch;
  fs::create_symlink("circle", scratch / "circle");
  const std::string name(300, 'a'), path = std::string(5000, 'a');
  for (const auto& [dir, why] : {std::pair{scratch / name, "File name too long"},
                                 {fs::path(path), "File name too long"},
                                 {scratch / "circle", "Too many levels"},
                                 {scratch / "circle/below", "Too many levels"}}) {
    EXPECT_TRUE(folders_in(dir).empty()) << dir;
    EXPECT_TRUE(class_folders(dir).names.empty()) << dir;
    const Error error = error_of([&, dir = dir] { image_folder(dir, Split::train, {}); });
    EXPECT_EQ(error.kind, ErrorKind::data);
    EXPECT_NE(error.message.find(why), std::string::npos) << error.what();
  }
}

// Names of classes go into weights, manifests and pages, all of which are UTF-8: what is not is
// refused before anything is trained.
TEST(Folder, AClassWhoseNameIsNotUtf8IsRefusedWithItsBytes) {
  const Scratch scratch;
  write_class(scratch / "caf\xe9", 2);
  write_class(scratch / "th\xc3\xa9", 2);
  const Error error = error_of([&] { image_folder(scratch.folder(), Split::train, {}); });
  EXPECT_EQ(error.kind, ErrorKind::data);
  EXPECT_NE(std::string(error.what()).find("'caf\\xe9' is not UTF-8"), std::string::npos)
      << error.what();
  write_class(scratch / "na\xefve", 2);
  const Error both = error_of([&] { image_folder(scratch.folder(), Split::train, {}); });
  EXPECT_NE(std::string(both.what()).find("'caf\\xe9', 'na\\xefve' are not UTF-8"),
            std::string::npos)
      << both.what();
}

TEST(Folder, JpegsShrinkOnlyAsFarAsWanted) {
  const Scratch scratch;
  write_class(scratch / "a", 1, 400, 600);
  write_class(scratch / "b", 1, 400, 600);
  const auto set = image_folder(scratch.folder(), Split::train, {3, 0.0, 0});
  Image image;
  for (const auto& [h, w, height] : {std::tuple{0, 0, 400},
                                     {400, 600, 400},
                                     {201, 10, 400},
                                     {200, 200, 200},
                                     {151, 10, 200},
                                     {150, 225, 150},
                                     {100, 100, 100},
                                     {50, 75, 50},
                                     {8, 8, 50},
                                     {900, 900, 400}}) {
    set->get(
        0,
        [&, h = h, w = w](int all_h, int all_w) {
          return Want{{0, 0, all_h, all_w}, h, w};
        },
        image);
    EXPECT_EQ(image.h, height) << h;
    EXPECT_EQ(image.w, height * 3 / 2);
  }
}

}  // namespace
}  // namespace tessera::data::folder_test
