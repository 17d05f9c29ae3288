// Ranks that are threads of one process run the same program: one of them compiles it, the others
// wait for it. Convention: a key holds everything that the program follows from.
#pragma once

#include <cstddef>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "compile/compile.h"

namespace tessera::run {

struct ProgramKey {
  config::Config config;
  std::string device;
  bool cuts_windows = false;  // the target says which; GlobalProgram::windows has its answers
  Goal goal = Goal::train;
  std::vector<std::int64_t> micro;
  Weights weights = Weights::live;
  ImageForm form = ImageForm::pixels;
  bool operator==(const ProgramKey&) const = default;
};

// A question that a pass asked the target, with its answer. Cards of one name may differ in it.
struct WindowAnswer {
  ir::Attention attrs;
  ir::Type q;
  bool cuts = false;
};

struct GlobalProgram {
  ir::Program program;
  std::vector<transforms::PassReport> passes;
  std::vector<WindowAnswer> windows{};  // the program follows from them, too

  // Whether the program is the one that this target would have, whoever made it.
  bool suits(const plan::Target& target) const;
};

// The programs asked for last, up to a number of equations, so that what is kept stays small beside
// any run. Threads may ask at once.
class ProgramMemo {
 public:
  using Made = std::shared_ptr<const GlobalProgram>;
  explicit ProgramMemo(std::size_t most_eqns) : most_eqns_(most_eqns) {}

  // The result of `make` for this key, made once. Where making fails, every caller makes it and
  // gets its own error; nothing is kept.
  Made get(const ProgramKey& key, const std::function<GlobalProgram()>& make);
  std::size_t kept_eqns() const;

 private:
  struct Entry {
    ProgramKey key;
    std::shared_future<Made> made;  // null when making failed
    std::size_t eqns = 0;           // 0 while it is made
  };
  void keep(const std::shared_ptr<Entry>& entry, std::size_t eqns);
  void forget(const std::shared_ptr<Entry>& entry);

  const std::size_t most_eqns_;
  mutable std::mutex mutex_;
  std::list<std::shared_ptr<Entry>> entries_;  // the one asked for last in front
};

// The memo that all ranks of this process share.
ProgramMemo& program_memo();

}  // namespace tessera::run
