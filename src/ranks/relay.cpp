#include "ranks/relay.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "base/as_error.h"

namespace tessera::run {
namespace {

constexpr int look_ms = 50;  // how soon the end of mpirun is noticed

// 0, or what went wrong.
int write_whole(int to, const char* text, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t done = ::write(to, text, bytes);
    if (done > 0) {
      text += done;
      bytes -= static_cast<std::size_t>(done);
    } else if (errno == EAGAIN) {  // somebody made the terminal not block
      struct pollfd room = {to, POLLOUT, 0};
      ::poll(&room, 1, 1000);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

// The next piece from one pipe: false when there is none. What nobody takes is read all the same,
// so that nobody waits for us.
bool hand_on(int from, int to, bool& deaf, std::atomic<bool>* lost) {
  char text[1 << 14];
  const ssize_t got = ::read(from, text, sizeof(text));
  if (got <= 0) return got < 0 && errno == EINTR;
  const int problem = deaf ? 0 : write_whole(to, text, static_cast<std::size_t>(got));
  deaf |= problem != 0;
  if (lost && problem != 0 && problem != EPIPE) *lost = true;
  return true;
}

}  // namespace

Relay::Relay() {
  if (::pipe2(out_, O_CLOEXEC) != 0 || ::pipe2(err_, O_CLOEXEC) != 0)
    throw Error(ErrorKind::memory,
                std::string("cannot make a pipe for mpirun: ") + std::strerror(errno), "",
                "`ulimit -n` is the limit");
  for (const int end : {out_[0], err_[0]}) ::fcntl(end, F_SETFL, O_NONBLOCK);
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    throw as_error(error);
  }
}

Relay::~Relay() {
  finish();
  for (const int end : {out_[0], out_[1], err_[0], err_[1]})
    if (end >= 0) ::close(end);
}

void Relay::become_output() const {
  ::dup2(out_[1], STDOUT_FILENO);
  ::dup2(err_[1], STDERR_FILENO);
}

void Relay::finish() {
  ended_ = true;
  if (thread_.joinable()) thread_.join();
}

void Relay::work() {
  bool deaf_out = false, deaf_err = false;
  for (;;) {
    const bool ended = ended_;  // asked before the last look, so nothing can come between
    struct pollfd pipes[2] = {{out_[0], POLLIN, 0}, {err_[0], POLLIN, 0}};
    ::poll(pipes, 2, ended ? 0 : look_ms);
    bool more = hand_on(out_[0], STDOUT_FILENO, deaf_out, &lost_);
    more |= hand_on(err_[0], STDERR_FILENO, deaf_err, nullptr);
    if (ended && !more) return;
  }
}

}  // namespace tessera::run
