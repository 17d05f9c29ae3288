// Where the classes of an image folder are: below DIR/train beside DIR/val or DIR/test, else below
// DIR itself. Convention: a class is a folder whose name does not begin with a dot; classes are
// numbered in the order of their names' bytes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::data {

struct ClassFolders {
  std::filesystem::path train, test;  // test empty: a part of train is kept for it
  std::vector<std::string> names;  // of the classes below train; empty when there is no such folder
};

// Looks at folders only. Error(data) when one is there and cannot be listed.
ClassFolders class_folders(const std::filesystem::path& dir);

// The folders directly below `dir`, sorted, without those that begin with a dot.
std::vector<std::string> folders_in(const std::filesystem::path& dir);

}  // namespace tessera::data
