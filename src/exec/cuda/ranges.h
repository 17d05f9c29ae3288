// Ranges with names for profilers (NVTX), one per scope of a model. They cost nothing unless a
// profiler is attached; of a graph that is replayed it sees those of its capture.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <string>
#include <string_view>

namespace tessera::exec::cuda {

// One range at a time; the last one ends with this object.
class Ranges {
 public:
  Ranges() = default;
  Ranges(const Ranges&) = delete;
  Ranges& operator=(const Ranges&) = delete;
  ~Ranges() { leave(); }

  void enter(std::string_view scope) {
    if (inside_ && scope == scope_) return;
    leave();
    scope_ = scope;
    ::nvtxRangePushA(scope_.c_str());
    inside_ = true;
  }

 private:
  void leave() {
    if (inside_) ::nvtxRangePop();
    inside_ = false;
  }
  std::string scope_;
  bool inside_ = false;
};

}  // namespace tessera::exec::cuda
