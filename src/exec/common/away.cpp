#include "exec/common/away.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "files/disk_call.h"
#include "files/scratch_file.h"

namespace tessera::exec {
namespace {

namespace fs = std::filesystem;

}  // namespace

// A thread that does one thing after the other. It ends with this object, which waits for what is
// under way.
class AwayFile::Worker {
 public:
  Worker() : thread_([this] { work(); }) {}
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  class Job final : public comm::Operation {
   public:
    Job(Worker& worker, fs::path path) : worker_(worker), path_(std::move(path)) {}
    ~Job() override {
      std::unique_lock lock(worker_.mutex_);
      worker_.changed_.wait(lock, [&] { return is_over_; });
    }
    bool done() override {
      const std::lock_guard lock(worker_.mutex_);
      if (is_over_) answer();
      return is_over_;
    }
    void wait() override {
      const files::DiskCall call("moving offloaded state", path_);
      std::unique_lock lock(worker_.mutex_);
      worker_.changed_.wait(lock, [&] { return is_over_; });
      answer();
    }

   private:
    friend class Worker;
    void answer() {
      if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    }
    Worker& worker_;
    const fs::path path_;
    bool is_over_ = false;
    std::exception_ptr error_;
  };

  comm::Pending start(const fs::path& path, std::function<void()> what) {
    auto job = std::make_unique<Job>(*this, path);
    {
      const std::lock_guard lock(mutex_);
      queue_.emplace_back(job.get(), std::move(what));
    }
    changed_.notify_all();
    return job;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
      if (queue_.empty()) return;
      auto [job, what] = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      std::exception_ptr error;
      try {
        what();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      job->error_ = error;
      job->is_over_ = true;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Job*, std::function<void()>>> queue_;
  bool ends_ = false;
  std::thread thread_;
};

// Both directions at the same time: a thread each.
struct AwayFile::File {
  explicit File(const fs::path& folder) : file(folder) {}
  files::ScratchFile file;
  Worker reads, writes;
};

AwayFile::AwayFile(std::string folder) : folder_(std::move(folder)) {}
AwayFile::~AwayFile() = default;

void AwayFile::add(const std::string& name, std::int64_t bytes) {
  CHECK(!has(name), name + " is in the file already");
  if (!file_) file_ = std::make_unique<File>(folder_);
  places_[name] = {file_->file.grow(bytes), bytes};
}

std::int64_t AwayFile::bytes() const { return file_ ? file_->file.bytes() : 0; }

std::int64_t AwayFile::bytes_of(std::string_view name) const {
  const auto found = places_.find(name);
  CHECK(found != places_.end(), "there is no buffer " + std::string(name) + " in the file");
  return found->second.bytes;
}

std::int64_t AwayFile::place_of(std::string_view name, std::int64_t offset,
                                std::size_t bytes) const {
  CHECK(offset >= 0 && offset + static_cast<std::int64_t>(bytes) <= bytes_of(name),
        "buffer " + std::string(name) + " is smaller than what was asked for");
  return places_.find(name)->second.begin + offset;
}

void AwayFile::write(std::string_view name, std::int64_t offset,
                     std::span<const std::byte> bytes) const {
  const std::int64_t place = place_of(name, offset, bytes.size());
  file_->file.write(place, bytes);
}

void AwayFile::read(std::string_view name, std::int64_t offset, std::span<std::byte> bytes) const {
  const std::int64_t place = place_of(name, offset, bytes.size());
  file_->file.read(place, bytes);
}

comm::Pending AwayFile::start_write(std::string_view name, std::int64_t offset,
                                    std::span<const std::byte> bytes) {
  const std::int64_t place = place_of(name, offset, bytes.size());
  return file_->writes.start(file_->file.path(),
                             [this, place, bytes] { file_->file.write(place, bytes); });
}

comm::Pending AwayFile::start_read(std::string_view name, std::int64_t offset,
                                   std::span<std::byte> bytes) {
  const std::int64_t place = place_of(name, offset, bytes.size());
  return file_->reads.start(file_->file.path(),
                            [this, place, bytes] { file_->file.read(place, bytes); });
}

}  // namespace tessera::exec
