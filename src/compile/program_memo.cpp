#include "compile/program_memo.h"

#include <algorithm>
#include <utility>

namespace tessera::run {

bool GlobalProgram::suits(const plan::Target& target) const {
  return std::all_of(windows.begin(), windows.end(), [&](const WindowAnswer& asked) {
    return asked.cuts == (target.cuts_windows && target.cuts_windows(asked.attrs, asked.q));
  });
}

ProgramMemo::Made ProgramMemo::get(const ProgramKey& key,
                                   const std::function<GlobalProgram()>& make) {
  std::promise<Made> promise;
  std::shared_ptr<Entry> mine;
  std::shared_future<Made> others;
  {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(entries_.begin(), entries_.end(),
                     [&](const std::shared_ptr<Entry>& entry) { return entry->key == key; });
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      others = (*found)->made;
    } else {
      mine = std::make_shared<Entry>(Entry{key, promise.get_future().share(), 0});
      entries_.push_front(mine);
    }
  }
  if (!mine) {
    if (Made made = others.get()) return made;
    return std::make_shared<const GlobalProgram>(make());
  }
  try {
    Made made = std::make_shared<const GlobalProgram>(make());
    keep(mine, made->program.eqns.size());
    promise.set_value(made);
    return made;
  } catch (...) {
    forget(mine);
    promise.set_value(nullptr);
    throw;
  }
}

std::size_t ProgramMemo::kept_eqns() const {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const std::shared_ptr<Entry>& entry : entries_) sum += entry->eqns;
  return sum;
}

// The program that was asked for least lately goes first; one that is being made stays, for those
// who wait.
void ProgramMemo::keep(const std::shared_ptr<Entry>& entry, std::size_t eqns) {
  const std::lock_guard lock(mutex_);
  entry->eqns = eqns;
  std::size_t sum = 0;
  entries_.remove_if([&](const std::shared_ptr<Entry>& each) {
    return (sum += each->eqns) > most_eqns_ && each->eqns > 0;
  });
}

void ProgramMemo::forget(const std::shared_ptr<Entry>& entry) {
  const std::lock_guard lock(mutex_);
  entries_.remove(entry);
}

ProgramMemo& program_memo() {
  constexpr std::size_t most_eqns = 1 << 14;  // about 10 MB
  static ProgramMemo memo(most_eqns);
  return memo;
}

}  // namespace tessera::run
