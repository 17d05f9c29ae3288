#include "base/process.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>

namespace tessera {

ProcessStat stat_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_ends = text.rfind(')');  // a name may hold anything
  if (name_ends == text.npos) return {};
  ProcessStat out;
  unsigned long long started = 0;
  const char* fields = " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu";
  if (std::sscanf(text.c_str() + name_ends + 1, fields, &out.state, &out.parent, &started) != 3) return {};
  out.started = started;
  return out;
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace tessera
