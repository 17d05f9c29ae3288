#include "data/cifar.h"

#include <fmt/format.h>

#include <cstring>
#include <sstream>

#include "base/check.h"
#include "base/utf8.h"
#include "files/regular_file.h"
#include "files/text.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
constexpr int side = 32, planes = 3;
constexpr std::size_t pixels = side * side;

bool there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

[[noreturn]] void refuse_missing(const CifarForm& form, const fs::path& dir,
                                 const std::vector<std::string>& missing) {
  const std::string get =
      fmt::format("`tessera data get {} --out {}` fetches it", form.name, dir.string());
  std::error_code ignored;
  if (!fs::is_directory(dir, ignored))
    throw Error(ErrorKind::data,
                fmt::format("expected a folder with {}, found {}", form.title,
                            there(dir) ? "a file" : "nothing"),
                dir.string(), get);
  for (const std::string& name : form.python)  // "train" may also be a folder of images
    if (fs::is_regular_file(dir / name, ignored) ||
        (name.starts_with("cifar") && there(dir / name)))
      throw Error(ErrorKind::data,
                  fmt::format("this is the Python form of {} (pickled objects, which run code when "
                              "they are read); the binary form is read",
                              form.title),
                  (dir / name).string(), get);
  if (there(dir / form.archive))
    throw Error(ErrorKind::data, "the archive is not unpacked", (dir / form.archive).string(),
                fmt::format("tar xzf {0} -C {1}", (dir / form.archive).string(), dir.string()));
  throw Error(ErrorKind::data,
              fmt::format("{} is not complete: {} missing", form.title, join(missing, ", ")),
              dir.string(), get);
}

// Where the files are: in `dir` itself or in the folder that the archive unpacks to.
fs::path find(const CifarForm& form, const fs::path& dir) {
  std::vector<std::string> fewest;
  for (const fs::path& place : {dir, dir / form.folder}) {
    std::vector<std::string> missing;
    for (const std::string& file : form.files())
      if (!there(place / file)) missing.push_back(file);
    if (missing.empty()) return place;
    if (fewest.empty() || missing.size() < fewest.size()) fewest = missing;
  }
  refuse_missing(form, dir, fewest);
}

std::vector<std::string> read_names(const fs::path& path, int classes) {
  std::istringstream text(files::read_text(path, 1 << 16, ErrorKind::data));
  std::vector<std::string> names;
  for (std::string line; std::getline(text, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  for (const std::string& name : names)
    if (!is_utf8(name))
      throw Error(ErrorKind::data,
                  fmt::format("the name of the class '{}' is not UTF-8", bytes_shown(name)),
                  path.string());
  if (static_cast<int>(names.size()) != classes)
    throw Error(
        ErrorKind::data,
        fmt::format("expected {} names of classes, one a line; found {}", classes, names.size()),
        path.string());
  return names;
}

class Cifar : public Dataset {
 public:
  Cifar(const CifarForm& form, const fs::path& place, Split split)
      : title_(form.title), names_(read_names(place / form.names, form.classes)) {
    for (const std::string& name : split == Split::train ? form.train : std::vector{form.test})
      append(form, place / name);
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  const std::vector<std::string>& class_names() const override { return names_; }
  int height() const override { return side; }
  int width() const override { return side; }
  int channels() const override { return planes; }
  std::int32_t label(std::int64_t index) const override {
    return labels_[static_cast<std::size_t>(index)];
  }
  std::string sample_name(std::int64_t index) const override {
    return fmt::format("{} image {}", title_, index);
  }

  void get(std::int64_t index, const Wants&, Image& image) const override {
    CHECK(index >= 0 && index < size(), fmt::format("sample {} of {}", index, size()));
    image.reshape(side, side, planes);
    std::memcpy(image.pixels.data(), &pixels_[static_cast<std::size_t>(index) * planes * pixels],
                planes * pixels);
  }

 private:
  void append(const CifarForm& form, const fs::path& path) {
    const files::RegularFile file(path, ErrorKind::data);
    const std::size_t record = form.record();
    if (file.size() == 0 || file.size() % record != 0)
      throw Error(
          ErrorKind::data,
          fmt::format("expected a whole number of records of {} bytes, found {} bytes ({} records "
                      "and {} bytes more)",
                      record, file.size(), file.size() / record, file.size() % record),
          path.string(),
          fmt::format("the file is cut off or another one; fetch it again: `tessera data get {}`",
                      form.name));
    const std::vector<std::byte> bytes = file.read(0, file.size());
    const std::size_t count = bytes.size() / record, before = labels_.size();
    labels_.reserve(before + count);
    pixels_.resize((before + count) * planes * pixels);
    std::uint8_t* dst = &pixels_[before * planes * pixels];
    for (std::size_t i = 0; i < count; ++i) {
      const auto* src =
          reinterpret_cast<const std::uint8_t*>(bytes.data()) + i * record + form.labels_before;
      if (*src >= form.classes)
        throw Error(
            ErrorKind::data,
            fmt::format("record {} has label {}, expected 0 to {}", i, *src, form.classes - 1),
            path.string(), "the file is damaged or of another set");
      labels_.push_back(*src++);
      for (std::size_t p = 0; p < pixels; ++p)
        for (std::size_t k = 0; k < planes; ++k) *dst++ = src[k * pixels + p];
    }
  }

  std::string title_;
  std::vector<std::string> names_;
  std::vector<std::uint8_t> labels_, pixels_;  // pixels_: [index][y][x][channel]
};

}  // namespace

std::vector<std::string> CifarForm::files() const {
  std::vector<std::string> all = train;
  all.push_back(test);
  all.push_back(names);
  return all;
}

const CifarForm& cifar10_form() {
  static const CifarForm form = {
      "cifar10",
      "CIFAR-10",
      10,
      0,
      "cifar-10-binary.tar.gz",
      "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
      "cifar-10-batches-bin",
      {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
       "data_batch_5.bin"},
      "test_batch.bin",
      "batches.meta.txt",
      {"data_batch_1", "batches.meta", "cifar-10-batches-py", "cifar-10-python.tar.gz"}};
  return form;
}

const CifarForm& cifar100_form() {
  static const CifarForm form = {"cifar100",
                                 "CIFAR-100",
                                 100,
                                 1,
                                 "cifar-100-binary.tar.gz",
                                 "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                                 "cifar-100-binary",
                                 {"train.bin"},
                                 "test.bin",
                                 "fine_label_names.txt",
                                 {"meta", "train", "cifar-100-python", "cifar-100-python.tar.gz"}};
  return form;
}

std::unique_ptr<Dataset> cifar(const CifarForm& form, const fs::path& dir, Split split) {
  return std::make_unique<Cifar>(form, find(form, dir), split);
}

}  // namespace tessera::data
