// data get: a published data set, downloaded, checked and unpacked; nothing to do when it is
// already there.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
#include "base/say.h"
#include "data/archive.h"
#include "data/cifar.h"
#include "data/fetch.h"
#include "report/console.h"
#include "verbs/verbs.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::uint64_t most_archive_bytes = std::uint64_t{512} << 20,
                        most_file_bytes = std::uint64_t{256} << 20;
const std::string publisher = "https://www.cs.toronto.edu/~kriz/";

const data::CifarForm& form_of(const std::string& name) {
  for (const data::CifarForm* form : {&data::cifar10_form(), &data::cifar100_form()})
    if (form->name == name) return *form;
  throw Error(ErrorKind::usage, "'" + name + "' is not a data set that can be fetched", "data get",
              "choose cifar10 or cifar100");
}

struct Sizes {
  std::int64_t train = 0, test = 0;
};

// Both splits of a complete and sound set; nothing when it is not there.
std::optional<Sizes> sizes(const data::CifarForm& form, const fs::path& dir) {
  try {
    return Sizes{data::cifar(form, dir, data::Split::train)->size(),
                 data::cifar(form, dir, data::Split::test)->size()};
  } catch (const Error& error) {
    if (error.kind != ErrorKind::data) throw;
    return {};
  }
}

// Into a folder of its own first; then the folder takes its place, or, where one exists, each file
// does.
void unpack_into(const data::CifarForm& form, const fs::path& archive, const fs::path& target) {
  const fs::path fresh = target.string() + ".part";
  std::error_code error;
  fs::remove_all(fresh, error);
  if (!error) fs::create_directories(fresh, error);
  if (error)
    throw Error(ErrorKind::disk, "cannot make the folder anew: " + error.message(), fresh.string(),
                "remove it, or choose another folder with --out");
  std::vector<data::Expected> expected;
  for (const std::string& file : form.files())
    expected.push_back({form.folder + "/" + file, fresh / file, most_file_bytes});
  try {
    data::unpack(archive, expected);
  } catch (...) {
    fs::remove_all(fresh, error);
    throw;
  }
  if (!fs::exists(target, error)) {
    fs::rename(fresh, target, error);
  } else {
    for (const std::string& file : form.files())
      if (!error) fs::rename(fresh / file, target / file, error);
    std::error_code ignored;
    fs::remove_all(fresh, ignored);
  }
  if (error)
    throw Error(ErrorKind::disk, "cannot put the files in place: " + error.message(),
                target.string());
}

}  // namespace

int data_get(const DataGetOptions& options) {
  const data::CifarForm& form = form_of(options.name);
  const fs::path out = options.out, target = out / form.folder;
  report::Console console;
  std::uint64_t bytes = 0;
  std::optional<Sizes> found = sizes(form, out);
  const bool already = found.has_value();
  if (already) {
    console.line(fmt::format("{} is already in {}", form.title, out.string()));
  } else {
    std::error_code error;
    fs::create_directories(out, error);
    if (error)
      throw Error(ErrorKind::disk, "cannot make the folder: " + error.message(), out.string(),
                  "choose another with --out");
    data::Fetch fetch;
    fetch.url = options.url.empty() ? publisher + form.archive : options.url;
    fetch.file = out / form.archive;
    fetch.sha256 = !options.sha256.empty() || !options.md5.empty() ? options.sha256 : form.sha256;
    fetch.md5 = options.md5;
    if (fetch.sha256.empty())
      console.line("note: MD5 does not protect against a forged archive; --sha256 does");
    fetch.max_bytes = most_archive_bytes;
    console.line(fmt::format("fetching {} to {}", fetch.url, fetch.file.string()));
    const auto start = std::chrono::steady_clock::now();
    fetch.progress = [&](std::uint64_t done, std::uint64_t total) {
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      if (total > 0)
        console.bar(static_cast<double>(done) / static_cast<double>(total), elapsed.count());
    };
    bytes = data::fetch(fetch);
    console.finish();
    console.line("checksum right; unpacking");
    unpack_into(form, fetch.file, target);
    fs::remove(fetch.file, error);
    data::cifar(form, out, data::Split::train);  // says what is wrong, should anything be
    found = sizes(form, out);
    if (!found)
      throw Error(ErrorKind::data, "the unpacked test set cannot be read", target.string());
    console.line(fmt::format("{}: {} training and {} test images; use --data {}:{}", form.title,
                             report::with_commas(found->train), report::with_commas(found->test),
                             form.name, out.string()));
  }
  if (options.json)
    say_json(stdout, ordered_json{{"name", form.name},
                                  {"source", form.name + ":" + out.string()},
                                  {"already", already},
                                  {"bytes", bytes},
                                  {"train", found->train},
                                  {"test", found->test}}
                         .dump(2, ' ', false, ordered_json::error_handler_t::replace));
  return 0;
}

}  // namespace tessera::run
