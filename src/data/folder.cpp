#include "data/folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "data/arrays/npy.h"
#include "data/class_folders.h"
#include "data/decode.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
constexpr int deepest = 16;  // folders below a class
constexpr std::size_t most_files = 200'000'000;
constexpr const char* form =
    "a folder per class, or train/ and val/ with a folder per class in each";

struct File {
  std::string name;  // below its class's folder
  std::uint64_t hash = 0;
};

bool called_like_an_image(const std::string& name, bool arrays) {
  const auto dot = name.rfind('.');
  if (dot == name.npos || name.front() == '.') return false;
  std::string ending = name.substr(dot + 1);
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (arrays) return ending == "npy";
  return ending == "jpg" || ending == "jpeg" || ending == "png";
}

// All images below one class's folder. Links are followed; a folder that was already entered (a
// loop of links) is passed over.
class Walk {
 public:
  // `base`: what links may lead to without being remarked on.
  Walk(const fs::path& base, bool arrays) : arrays_(arrays) {
    std::error_code ignored;
    base_ = fs::canonical(base, ignored);
  }
  std::vector<File> run(const fs::path& folder) {
    root_ = folder;
    std::error_code ignored;
    if (fs::is_symlink(fs::symlink_status(folder, ignored))) follow(folder);
    files_.clear();
    entered_.clear();
    enter("", 0);
    return std::move(files_);
  }
  std::int64_t ignored() const { return ignored_; }
  const std::string& outside() const { return outside_; }

 private:
  // Remembers the first link out of the base.
  void follow(const fs::path& link) {
    if (!outside_.empty() || base_.empty()) return;
    std::error_code problem;
    const fs::path target = fs::canonical(link, problem);
    if (problem || std::mismatch(base_.begin(), base_.end(), target.begin(), target.end()).first ==
                       base_.end())
      return;
    outside_ = link.string() + " -> " + target.string();
  }

  void enter(const std::string& below, int depth) {
    const fs::path here = below.empty() ? root_ : root_ / below;
    struct stat about {};
    if (depth > deepest || ::stat(here.c_str(), &about) != 0 ||
        !entered_.insert({about.st_dev, about.st_ino}).second) {
      ++ignored_;
      return;
    }
    std::vector<std::string> folders;
    std::error_code problem;
    for (fs::directory_iterator it(here, problem), end; !problem && it != end;
         it.increment(problem)) {
      const std::string name = it->path().filename().string(),
                        path = below.empty() ? name : below + "/" + name;
      std::error_code ignored;
      const fs::file_status status = it->status(ignored);  // of what a link leads to
      if (status.type() == fs::file_type::none &&
          ignored != std::errc::too_many_symbolic_link_levels)
        throw Error(ErrorKind::data, "cannot look at the file: " + ignored.message(),
                    (root_ / path).string());
      if (it->is_symlink(ignored)) follow(it->path());
      if (fs::is_directory(status) && !name.starts_with("."))
        folders.push_back(path);
      else if (fs::is_regular_file(status) && called_like_an_image(name, arrays_))
        files_.push_back({path, 0});
      else
        ++ignored_;
    }
    if (problem)
      throw Error(ErrorKind::data, "cannot list the folder: " + problem.message(), here.string(),
                  "make it readable, or take it out of the data set");
    if (files_.size() > most_files)
      throw Error(ErrorKind::data, fmt::format("more than {} files", most_files), root_.string());
    std::sort(
        folders.begin(),
        folders.end());  // which of two links to one folder counts must not depend on the disk
    for (const std::string& folder : folders) enter(folder, depth + 1);
  }

  bool arrays_ = false;
  fs::path base_, root_;
  std::string outside_;
  std::vector<File> files_;
  std::set<std::pair<dev_t, ino_t>> entered_;
  std::int64_t ignored_ = 0;
};

// All that is wrong with a folder, in one error.
class Problems {
 public:
  void add(const std::string& what, const fs::path& where, const std::string& help) {
    const std::string shown = bytes_shown(where.string());
    if (error_)
      error_->and_also(shown + ": " + what);
    else
      error_.emplace(ErrorKind::data, what, shown, help);
  }
  bool none() const { return !error_; }
  void refuse() const {
    if (error_) throw *error_;
  }

 private:
  std::optional<Error> error_;
};

class Folder : public ImageFolder {
 public:
  Folder(const fs::path& dir, Split split, const FolderOptions& options) : options_(options) {
    const ClassFolders found = class_folders(dir);
    refuse_nonsense(dir, found);
    names_ = found.names;
    const bool own_folder = !found.test.empty();
    root_ = own_folder && split == Split::test ? found.test : found.train;
    Problems problems;
    look_at_names(found, problems);

    std::vector<std::vector<File>> classes(names_.size());
    Walk walk(dir, options.arrays);
    look_at_classes(root_, found, walk, problems, &classes);
    ignored_ = walk.ignored();
    outside_ = walk.outside();
    if (!problems.none() && own_folder)  // what is wrong with the other half is said, too
      look_at_classes(split == Split::test ? found.train : found.test, found, walk, problems,
                      nullptr);
    problems.refuse();
    for (std::size_t i = 0; i < names_.size(); ++i) {
      order(classes[i], names_[i], own_folder ? 0 : options.seed);
      if (!own_folder) keep(classes[i], split);
    }
    interleave(classes);
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  const std::vector<std::string>& class_names() const override { return names_; }
  int height() const override { return 0; }
  int width() const override { return 0; }
  int channels() const override { return options_.channels; }
  std::int64_t ignored() const override { return ignored_; }
  std::string outside() const override { return outside_; }
  std::int32_t label(std::int64_t index) const override {
    return labels_[static_cast<std::size_t>(index)];
  }
  std::string sample_name(std::int64_t index) const override {
    return (root_ / names_[static_cast<std::size_t>(label(index))] /
            files_[static_cast<std::size_t>(index)])
        .string();
  }

  void get(std::int64_t index, const Wants& wants, Image& image) const override {
    CHECK(index >= 0 && index < size(), fmt::format("sample {} of {}", index, size()));
    if (options_.arrays) return decode_npy(fs::path(sample_name(index)), options_.channels, image);
    thread_local Image decoded;
    decode_image(fs::path(sample_name(index)), wants, decoded);
    if (decoded.c == options_.channels)
      std::swap(decoded, image);
    else
      to_channels(decoded, options_.channels, image);
  }

 private:
  static void refuse_nonsense(const fs::path& dir, const ClassFolders& found) {
    std::error_code ignored;
    std::error_code problem;
    const fs::file_status status = fs::status(dir, problem);
    if (!fs::is_directory(status)) {
      std::string what = "cannot look at the folder: " + problem.message();
      if (fs::exists(status)) what = "expected a folder of images, found a file";
      if (status.type() == fs::file_type::not_found) what = "there is no such folder";
      throw Error(ErrorKind::data, what, dir.string(), std::string("expected ") + form);
    }
    if (found.names.empty())
      throw Error(ErrorKind::data, std::string("expected ") + form + "; found no folders",
                  dir.string());
    if (found.train == dir && !fs::is_directory(dir / "train", ignored))
      for (const char* name : {"val", "test"})
        if (!folders_in(dir / name).empty())
          throw Error(ErrorKind::data,
                      fmt::format("found {}/ with folders in it, but no train/ beside it", name),
                      dir.string(), std::string("expected ") + form);
  }

  static void look_at_names(const ClassFolders& found, Problems& problems) {
    std::vector<std::string> odd;
    for (const std::string& name : found.names)
      if (!is_utf8(name)) odd.push_back("'" + bytes_shown(name) + "'");
    if (!odd.empty())
      problems.add(fmt::format("the name{} of the class{} {} {} not UTF-8, as weights and reports "
                               "need it",
                               odd.size() > 1 ? "s" : "", odd.size() > 1 ? "es" : "",
                               join(odd, ", "), odd.size() > 1 ? "are" : "is"),
                   found.train, "rename the folder (`convmv -f latin1 -t utf8` does many at once)");
    if (found.names.size() < 2)
      problems.add("expected at least two classes, found only " + bytes_shown(found.names[0]),
                   found.train, std::string("expected ") + form);
  }

  // Lists the images of all classes below `root` (into `classes`, where it is given) and names the
  // classes that training does not have and those without an image.
  void look_at_classes(const fs::path& root, const ClassFolders& found, Walk& walk,
                       Problems& problems, std::vector<std::vector<File>>* classes) const {
    const auto one = [](const std::vector<std::string>& names) { return names.size() == 1; };
    std::vector<std::string> strange, empty;
    for (const std::string& name : folders_in(root)) {
      const auto place = std::lower_bound(names_.begin(), names_.end(), name);
      if (place == names_.end() || *place != name) {
        strange.push_back("'" + bytes_shown(name) + "'");
        continue;
      }
      std::vector<File> files;
      try {
        files = walk.run(root / name);
      } catch (const Error& error) {  // what else is wrong is said with it
        problems.add(error.message, error.where, error.hint);
        continue;
      }
      if (files.empty()) empty.push_back(bytes_shown(name));
      if (classes) (*classes)[static_cast<std::size_t>(place - names_.begin())] = std::move(files);
    }
    if (!strange.empty())
      problems.add(fmt::format("the class{} {} {} not among the {} training classes",
                               one(strange) ? "" : "es", join(strange, ", "),
                               one(strange) ? "is" : "are", names_.size()),
                   root,
                   "the folders of " + bytes_shown(found.train.string()) + " name the classes");
    if (!empty.empty())
      problems.add(
          fmt::format("no {} in the class{} {}", options_.arrays ? ".npy file" : "JPEG or PNG",
                      one(empty) ? "" : "es", join(empty, ", ")),
          root, "add images or remove the folder");
  }

  static void order(std::vector<File>& files, const std::string& name, std::uint64_t seed) {
    const Key key = Key{seed}.with("folder").with(name);
    for (File& file : files) file.hash = key.with(file.name).bits;
    std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
      return a.hash != b.hash ? a.hash < b.hash : a.name < b.name;
    });
  }

  // The first part of a class is for testing: at least one image, and at least one is left, where
  // there are two.
  void keep(std::vector<File>& files, Split split) const {
    const auto n = static_cast<std::int64_t>(files.size());
    auto test =
        static_cast<std::int64_t>(std::llround(static_cast<double>(n) * options_.val_fraction));
    if (options_.val_fraction > 0 && n > 1) test = std::clamp<std::int64_t>(test, 1, n - 1);
    if (n < 2) test = 0;
    const auto cut = files.begin() + test;
    if (split == Split::test)
      files.erase(cut, files.end());
    else
      files.erase(files.begin(), cut);
  }

  // Image i of n of its class stands at (i + 1/2) / n of the way.
  void interleave(std::vector<std::vector<File>>& classes) {
    struct Place {
      double at;
      std::int32_t label;
      std::size_t file;
    };
    std::vector<Place> places;
    for (std::size_t k = 0; k < classes.size(); ++k)
      for (std::size_t i = 0; i < classes[k].size(); ++i)
        places.push_back({(static_cast<double>(i) + 0.5) / static_cast<double>(classes[k].size()),
                          static_cast<std::int32_t>(k), i});
    std::stable_sort(places.begin(), places.end(),
                     [](const Place& a, const Place& b) { return a.at < b.at; });
    for (const Place& place : places) {
      labels_.push_back(place.label);
      files_.push_back(std::move(classes[static_cast<std::size_t>(place.label)][place.file].name));
    }
  }

  FolderOptions options_;
  fs::path root_;
  std::vector<std::string> names_, files_;
  std::vector<std::int32_t> labels_;
  std::int64_t ignored_ = 0;
  std::string outside_;
};

}  // namespace

std::unique_ptr<ImageFolder> image_folder(const fs::path& dir, Split split,
                                          const FolderOptions& options) {
  if (!options.arrays && (options.channels < 1 || options.channels > 4))
    throw Error(ErrorKind::usage,
                fmt::format("the model takes {} channels; images have 1 to 4", options.channels),
                "model.channels");
  return std::make_unique<Folder>(dir, split, options);
}

}  // namespace tessera::data
