#include "base/process.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

namespace tessera {

ProcessStat stat_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_ends = text.rfind(')');  // a name may hold anything
  if (name_ends == text.npos) return {};
  ProcessStat out;
  unsigned long long started = 0;
  const char* fields =
      " %c %d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu";
  if (std::sscanf(text.c_str() + name_ends + 1, fields, &out.state, &out.parent, &out.session,
                  &started) != 4)
    return {};
  out.started = started;
  return out;
}

std::vector<int> all_processes() {
  std::vector<int> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error))
    if (const int pid = std::atoi(entry.path().filename().c_str()); pid > 0) out.push_back(pid);
  return out;
}

bool is_own(int pid) {
  struct stat about = {};
  return ::stat(("/proc/" + std::to_string(pid)).c_str(), &about) == 0 &&
         about.st_uid == ::geteuid();
}

std::string variable_of(int pid, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  for (std::string entry; std::getline(file, entry, '\0');)
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  return {};
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(file, text);
  return text;
}

namespace {

std::string find_in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (std::string rest = path ? path : ""; !rest.empty();) {
    const auto colon = rest.find(':');
    std::string candidate = rest.substr(0, colon) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    rest = colon == rest.npos ? "" : rest.substr(colon + 1);
  }
  return {};
}

}  // namespace

std::string find_mpirun() {
  const std::string own = find_in_path(TESSERA_MPIRUN);
  return own.empty() ? find_in_path("mpirun") : own;
}

namespace {

std::vector<std::pair<std::string, std::string>> settings_for_mpirun(bool crowded) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                           "OMPI_MCA_rmaps_base_oversubscribe", "PRTE_ALLOW_RUN_AS_ROOT",
                           "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"})
    out.emplace_back(name, "1");
  out.emplace_back("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
  out.emplace_back("OMPI_MCA_hwloc_base_binding_policy",
                   "none");  // a rank may have several threads
  if (crowded) out.emplace_back("OMPI_MCA_mpi_yield_when_idle", "1");
  return out;
}

}  // namespace

bool mpirun_may_oversubscribe() {
  const auto told = [](const char* name) {
    std::string value = std::getenv(name) ? std::getenv(name) : "";
    for (char& c : value) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return value;
  };
  const std::string value = told("OMPI_MCA_rmaps_base_oversubscribe"),
                    policy = told("PRTE_MCA_rmaps_default_mapping_policy");
  for (const char* yes : {"1", "t", "true", "y", "yes", "on"})
    if (value == yes) return true;
  return policy.find("oversubscribe") != policy.npos &&
         policy.find("nooversubscribe") == policy.npos;
}

void prepare_for_mpirun(bool crowded) {
  for (const auto& [name, value] : settings_for_mpirun(crowded))
    ::setenv(name.c_str(), value.c_str(), 0);
  ::setenv("OMPI_MCA_orte_execute_quiet", "1", 0);
}

std::vector<std::string> environment_for_mpirun(bool crowded) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry; ++entry) out.emplace_back(*entry);
  for (const auto& [name, value] : settings_for_mpirun(crowded))
    if (!std::getenv(name.c_str())) out.push_back(name + "=" + value);
  return out;
}

}  // namespace tessera
