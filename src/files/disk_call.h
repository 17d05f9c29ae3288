// A system call to a disk takes as long as the disk likes. Whoever watches a thread can tell it
// from a thread that hangs: writers of this room note each call that can take long while they are
// inside it.
#pragma once

#include <filesystem>

namespace tessera::files {

// Hears of the calls of one thread, on that thread.
class DiskObserver {
 public:
  virtual ~DiskObserver() = default;
  virtual void begins(const char* verb, const std::filesystem::path& path) = 0;
  virtual void ended() = 0;

  // Makes it the observer of this thread as long as it lives; null: none.
  class Here {
   public:
    explicit Here(DiskObserver* observer);
    ~Here();
    Here(const Here&) = delete;
    Here& operator=(const Here&) = delete;

   private:
    DiskObserver* before_;
  };
};

// Lives as long as the call. `verb`: "flushing". Of calls inside each other the outer one is told.
class DiskCall {
 public:
  DiskCall(const char* verb, const std::filesystem::path& path);
  ~DiskCall();
  DiskCall(const DiskCall&) = delete;
  DiskCall& operator=(const DiskCall&) = delete;

 private:
  DiskObserver* told_;
};

}  // namespace tessera::files
