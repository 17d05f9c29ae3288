#include "exec/cuda/library.h"

#include <dlfcn.h>

#include "base/check.h"

namespace tessera::exec::cuda {

Library Library::find(std::vector<std::string> names) {
  Library out;
  std::string why;
  for (const std::string& name : names) {
    out.handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (out.handle_) {
      out.name_ = name;
      return out;
    }
    const char* said = ::dlerror();
    why += (why.empty() ? "" : "; ") + std::string(said ? said : name + " cannot be opened");
  }
  out.error_ = "looked for " + join(names, ", then ") + ": " + why;
  return out;
}

Library Library::open(std::vector<std::string> names, const std::string& purpose) {
  const std::string first = names.empty() ? "no library" : names.front();
  Library out = find(std::move(names));
  if (!out)
    throw Error(ErrorKind::device, first + " is needed " + purpose + "; " + out.error_, first,
                "install it, or add its folder to LD_LIBRARY_PATH; --device cpu needs none");
  return out;
}

void* Library::find_address(const char* function) const {
  return handle_ ? ::dlsym(handle_, function) : nullptr;
}

void* Library::address(const char* function) const {
  void* const found = find_address(function);
  if (!found)
    throw Error(ErrorKind::device,
                "the library " + (name_.empty() ? std::string("that is not open") : name_) +
                    " has no function " + function,
                name_, "install a newer version of it");
  return found;
}

}  // namespace tessera::exec::cuda
