#include "base/streams.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>

namespace tessera {
namespace {

constexpr const char* columns_variable = "TESSERA_TERMINAL_COLUMNS";
constexpr const char* stdout_variable = "TESSERA_STDOUT_COLUMNS";
constexpr int usual_columns = 80, fewest_columns = 40, most_columns = 1000;

int columns_of(int stream, const char* variable) {
  if (::isatty(stream) == 0) {
    const char* told = std::getenv(variable);
    return told && *told ? std::clamp(std::atoi(told), 0, most_columns) : 0;
  }
  struct winsize size {};
  const bool known = ::ioctl(stream, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? std::clamp<int>(size.ws_col, fewest_columns, most_columns) : usual_columns;
}

}  // namespace

void occupy_standard_streams() {
  for (const int wanted : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(wanted, F_GETFD) != -1) continue;
    const int got = ::open("/dev/null", wanted == STDERR_FILENO ? O_WRONLY : O_RDONLY);
    if (got >= 0 && got != wanted) {
      ::dup2(got, wanted);
      ::close(got);
    }
  }
}

void survive_closed_pipes() { std::signal(SIGPIPE, SIG_IGN); }

int terminal_columns() { return columns_of(STDERR_FILENO, columns_variable); }
int stdout_columns() { return columns_of(STDOUT_FILENO, stdout_variable); }

void hand_terminal_on() {
  ::setenv(columns_variable, std::to_string(terminal_columns()).c_str(), 1);
  ::setenv(stdout_variable, std::to_string(stdout_columns()).c_str(), 1);
}

bool cannot_write_stdout() {
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  struct pollfd pipe = {STDOUT_FILENO, POLLOUT, 0};
  return lost && !(::poll(&pipe, 1, 0) == 1 && (pipe.revents & POLLERR) != 0);
}

}  // namespace tessera
