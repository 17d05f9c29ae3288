// Results of a kernel that follow from attributes and shapes alone (a parsed signature, tiles, a
// library's descriptors) are kept with its step of the plan from the first call on.
#pragma once

#include <memory>

namespace tessera::exec {

class Memo {
 public:
  template <class T, class Make>
  const T& get(const Make& make) {
    if (!kept_) kept_ = std::make_shared<const T>(make());
    return *static_cast<const T*>(kept_.get());
  }

 private:
  std::shared_ptr<const void> kept_;
};

}  // namespace tessera::exec
