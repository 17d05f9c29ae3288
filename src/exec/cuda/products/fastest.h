// Which algorithm of a library was the fastest for a product or a convolution, measured once on a
// card and kept on disk (cache_folder()): every later run takes the same, so that its bits are the
// same. Convention: one file per card and versions of libraries, a line per product; what cannot be
// kept is not measured. Nothing here needs a card.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "exec/choices.h"

namespace tessera::exec::cuda {

// Products and convolutions of less are not measured: they take some microseconds.
inline constexpr double least_measured_flops = 2e9;

class Fastest {
 public:
  // The table of everything that was chosen with these (exec/choices.h); an empty path: none.
  explicit Fastest(std::filesystem::path file) : file_(std::move(file)) {}
  // The table of this process; there is one for each card.
  static Fastest& of(const Choices::Facts& made_with);

  // The table's entry of this key, else the answer of `measure`, which is then in the table. Null:
  // there is no place to keep it, or TESSERA_CUDA_MEASURE=0; nothing was measured.
  const Choice* find(const std::string& key, const std::function<Choice()>& measure);

 private:
  void read();
  bool append(const std::string& key, const Choice& choice) const;

  std::filesystem::path file_;
  std::mutex mutex_;
  std::map<std::string, Choice, std::less<>> rows_;
};

}  // namespace tessera::exec::cuda
