// The binary on a terminal of its own (a pty), as a person has it: what it wrote there, both
// streams together.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace tessera::test {

struct OnTerminal {
  int code = -1;
  std::string text;
};

// How wide the terminal is, and whether it may have colours.
struct TerminalLook {
  unsigned short columns = 200;
  bool color = false;
};

// A command that says nothing for a minute is killed, and its code is 137.
inline OnTerminal on_terminal(const std::vector<std::string>& arguments,
                              const TerminalLook& look = {}) {
  OnTerminal out;
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0) return out;
  const std::string name = ::ptsname(master);
  std::vector<char*> words = {const_cast<char*>(TESSERA_BINARY)};
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();
    const int slave = ::open(name.c_str(), O_RDWR);  // becomes the session's terminal
    const struct winsize size = {50, look.columns, 0, 0};
    ::ioctl(slave, TIOCSWINSZ, &size);
    for (const int stream : {0, 1, 2}) ::dup2(slave, stream);
    look.color ? ::unsetenv("NO_COLOR") : ::setenv("NO_COLOR", "1", 1);
    ::execv(words[0], words.data());
    ::_exit(127);
  }
  char buffer[4096];
  for (;;) {
    struct pollfd ready = {master, POLLIN, 0};
    const int found = ::poll(&ready, 1, 60'000);
    if (found == 0) ::kill(child, SIGKILL);
    const ssize_t n =
        ::read(master, buffer, sizeof(buffer));  // EIO: nobody has the other end any more
    if (n <= 0) break;
    out.text.append(buffer, static_cast<std::size_t>(n));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(master);
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return out;
}

// The lines that a terminal showed, one after the other: those of a bar that was redrawn each
// count.
inline std::vector<std::string> lines_on_terminal(const std::string& text) {
  std::vector<std::string> out = {""};
  for (const char c : text)
    if (c == '\r' || c == '\n')
      out.emplace_back();
    else if (out.back() == "\033[" && c == 'K')  // the line before it is cleared
      out.back().clear();
    else
      out.back() += c;
  return out;
}

}  // namespace tessera::test
