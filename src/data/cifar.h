// CIFAR-10 and CIFAR-100 in the published binary form: records of a label (CIFAR-100: a coarse one,
// then the fine one, which counts) and 32 x 32 red, green and blue planes. Convention: a set is
// there whole or not at all, and is kept in memory as interleaved bytes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace tessera::data {

// One published set: how its archive, folder and files are called.
struct CifarForm {
  std::string name, title;              // cifar10, CIFAR-10
  int classes = 10, labels_before = 0;  // bytes of a record before the label that counts
  std::string archive, sha256, folder;  // cifar-10-binary.tar.gz, its checksum, the folder in it
  std::vector<std::string> train;
  std::string test, names;
  std::vector<std::string> python;  // files and folders that tell the Python form, which is refused

  std::vector<std::string> files() const;  // all that must be there
  std::size_t record() const { return static_cast<std::size_t>(labels_before) + 1 + 3 * 32 * 32; }
};
const CifarForm& cifar10_form();
const CifarForm& cifar100_form();

// `dir` holds the files or the folder of the archive. Throws Error(data): all missing files at
// once, a size that is no whole number of records, a label out of range.
std::unique_ptr<Dataset> cifar(const CifarForm& form, const std::filesystem::path& dir,
                               Split split);

}  // namespace tessera::data
