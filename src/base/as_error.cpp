#include "base/as_error.h"

#include <filesystem>
#include <new>
#include <system_error>

namespace tessera {

Error as_error(const std::exception& thrown) {
  if (const auto* error = dynamic_cast<const Error*>(&thrown)) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&thrown))
    return Error(ErrorKind::memory, "out of memory");
  if (const auto* error = dynamic_cast<const std::filesystem::filesystem_error*>(&thrown))
    return Error(
        error->code() == std::errc::not_enough_memory ? ErrorKind::memory : ErrorKind::disk,
        error->code().message(), error->path1().string(),
        "a file or folder cannot be looked at: its disk must be there, and it must be readable");
  const auto* error = dynamic_cast<const std::system_error*>(&thrown);
  if (error && (error->code() == std::errc::resource_unavailable_try_again ||
                error->code() == std::errc::not_enough_memory))
    return Error(
        ErrorKind::memory,
        std::string("the system gives no more threads or memory: ") + error->code().message(), "",
        "`ulimit -a` shows the limits; --threads, data.workers and run.np are what asks for "
        "threads");
  if (error) return Error(ErrorKind::disk, error->what());
  return Error(ErrorKind::internal, std::string("unexpected: ") + thrown.what());
}

}  // namespace tessera
