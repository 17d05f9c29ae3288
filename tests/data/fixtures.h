// Small data sets on disk for the tests: CIFAR files, folders of images, tar.gz archives.
// Convention: contents follow from numbers, so that a test can say what it expects to read.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "data/cifar.h"
#include "data/encoders.h"

namespace tessera::test {

void write_bytes(const std::filesystem::path& path, const std::string& bytes);
std::string read_bytes(const std::filesystem::path& path);

// Byte b of record r in file f; label r % classes.
inline std::uint8_t cifar_byte(int file, int record, int byte) {
  return static_cast<std::uint8_t>(file * 7 + record * 31 + byte);
}
std::string cifar_records(const data::CifarForm& form, int file, int records);
// All files of a form, `records` each; training files are numbered from 0, the test file is
// number 9.
void write_cifar(const data::CifarForm& form, const std::filesystem::path& dir, int records);

// `count` images "0.jpg", "1.png", "2.jpg", ... of h x w; image i is flat grey 10 + i.
void write_class(const std::filesystem::path& folder, int count, int h = 8, int w = 8);

// A ustar archive of regular files, plain or gzipped; `type` for an entry of another kind.
struct TarEntry {
  std::string name, content;
  char type = '0';
};
std::string tar(const std::vector<TarEntry>& entries);
std::string tar_gz(const std::vector<TarEntry>& entries);
std::string cifar_archive(const data::CifarForm& form, int records);

}  // namespace tessera::test
