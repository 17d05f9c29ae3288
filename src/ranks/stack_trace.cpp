#include "ranks/stack_trace.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>

namespace tessera::run {
namespace {

constexpr int most_frames = 48;
constexpr int own_frames = 2;  // the handler and what the kernel put below it
constexpr auto trace_within = std::chrono::milliseconds(400);

std::array<void*, most_frames> frames;
std::atomic<int> frame_count = -1;  // -1: none yet
std::mutex one_at_a_time;

int trace_signal() { return SIGRTMIN + 7; }

void note_frames(int) {
  const int before = errno;
  frame_count.store(::backtrace(frames.data(), most_frames), std::memory_order_release);
  errno = before;
}

// "tessera::run::Trainer::step() + 0x1c", or the file and the place in it where it has no name.
std::string name_of_frame(void* address) {
  Dl_info info = {};
  if (!::dladdr(address, &info)) return fmt::format("{}", address);
  if (!info.dli_sname)
    return fmt::format(
        "{} + {:#x}",
        std::filesystem::path(info.dli_fname ? info.dli_fname : "?").filename().string(),
        static_cast<char*>(address) - static_cast<char*>(info.dli_fbase));
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status), std::free);
  std::string name = status == 0 && plain ? plain.get() : info.dli_sname;
  if (name.size() > 160) name = name.substr(0, 157) + "...";
  return fmt::format("{} + {:#x}", name,
                     static_cast<char*>(address) - static_cast<char*>(info.dli_saddr));
}

std::string first_line(const std::filesystem::path& file) {
  std::ifstream text(file);
  std::string line;
  std::getline(text, line);
  return line;
}

}  // namespace

void prepare_stack_traces() {
  static std::once_flag once;
  std::call_once(once, [] {
    std::array<void*, 4> some;
    ::backtrace(some.data(), static_cast<int>(some.size()));  // loads what it needs
    struct sigaction action = {};
    action.sa_handler = note_frames;
    action.sa_flags = SA_RESTART;
    ::sigaction(trace_signal(), &action, nullptr);
  });
}

std::string stack_of(pthread_t thread, const std::string& indent) {
  const std::lock_guard lock(one_at_a_time);
  frame_count.store(-1, std::memory_order_release);
  if (::pthread_kill(thread, trace_signal()) != 0) return "";
  const auto until = std::chrono::steady_clock::now() + trace_within;
  while (frame_count.load(std::memory_order_acquire) < 0) {
    if (std::chrono::steady_clock::now() > until) return "";
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::string out;
  for (int i = own_frames; i < frame_count.load(std::memory_order_acquire); ++i)
    out += indent + name_of_frame(frames[static_cast<std::size_t>(i)]) + "\n";
  return out;
}

std::string kernel_stack_of(int pid, const std::string& indent) {
  std::string out;
  std::error_code ignored;
  const std::filesystem::path tasks = fmt::format("/proc/{}/task", pid);
  for (const auto& task : std::filesystem::directory_iterator(tasks, ignored)) {
    const std::string where = first_line(task.path() / "wchan");
    out += fmt::format("{}thread {} ({}): {}\n", indent, task.path().filename().string(),
                       first_line(task.path() / "comm"),
                       where.empty() || where == "0" ? "running, or not told" : where);
    std::ifstream stack(task.path() / "stack");
    for (std::string line; std::getline(stack, line);) out += indent + "  " + line + "\n";
  }
  return out;
}

}  // namespace tessera::run
