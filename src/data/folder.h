// Image folders: a class per folder, JPEG and PNG (or .npy arrays) of any size below it, at any
// depth.
// Convention: within a class files are ordered by a hash of their name, and classes are interleaved
// in proportion, so that every stretch of indices holds about the same mixture: the first tenth of
// the set is a fair tenth, and what is kept for testing is stratified.
#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset.h"

namespace tessera::data {

struct FolderOptions {
  int channels = 3;           // 1 to 4; images are converted. Arrays have exactly so many
  double val_fraction = 0.1;  // of each class, for testing, where there is no DIR/val or DIR/test
  std::uint64_t seed = 0;     // chooses that part, together with the files' names
  bool arrays = false;        // .npy files instead of pictures (npy.h)
};

class ImageFolder : public Dataset {
 public:
  // Files and folders that were passed over: not called .jpg, .jpeg or .png (.npy), hidden,
  // dangling, or seen before through another link.
  virtual std::int64_t ignored() const = 0;
  // The first link found that leads out of the data's folder, and where to; "": none does. Links
  // are followed all the same.
  virtual std::string outside() const = 0;
};

// Throws Error(data) when there are no classes, when a class is empty (all of them are named), or
// when a test class has no training class.
std::unique_ptr<ImageFolder> image_folder(const std::filesystem::path& dir, Split split,
                                          const FolderOptions& options);

}  // namespace tessera::data
