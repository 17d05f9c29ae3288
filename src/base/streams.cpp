#include "base/streams.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <initializer_list>

namespace tessera {

void occupy_standard_streams() {
  for (const int wanted : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(wanted, F_GETFD) != -1) continue;
    const int got = ::open("/dev/null", wanted == STDERR_FILENO ? O_WRONLY : O_RDONLY);
    if (got >= 0 && got != wanted) ::dup2(got, wanted), ::close(got);
  }
}

void survive_closed_pipes() { std::signal(SIGPIPE, SIG_IGN); }

bool cannot_write_stdout() {
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  struct pollfd pipe = {STDOUT_FILENO, POLLOUT, 0};
  return lost && !(::poll(&pipe, 1, 0) == 1 && (pipe.revents & POLLERR) != 0);
}

}  // namespace tessera
