#include "run/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/threads.h"
#include "comm/choose.h"
#include "run/ranks.h"

namespace tessera::run {
namespace {

// The launcher in PATH, or nothing.
std::string find_mpirun() {
  const char* path = std::getenv("PATH");
  for (std::string rest = path ? path : ""; !rest.empty();) {
    const auto colon = rest.find(':');
    const std::string candidate = rest.substr(0, colon) + "/mpirun";
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    rest = colon == rest.npos ? "" : rest.substr(colon + 1);
  }
  return {};
}

// Requests to stop that arrived while mpirun runs.
volatile std::sig_atomic_t asked = 0;
void ask(int) { asked = asked + 1; }

pid_t parent_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  const auto name_ends = text.rfind(')');  // a name may hold anything
  int parent = 0;
  char state = 0;
  if (name_ends == text.npos || std::sscanf(text.c_str() + name_ends + 1, " %c %d", &state, &parent) != 2) return 0;
  return parent;
}

// The ranks that mpirun started here. They are asked one by one: not every mpirun hands signals on, and all end the job at once on SIGTERM.
void ask_ranks(pid_t mpirun) {
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    if (process <= 1 || std::filesystem::read_symlink(entry.path() / "exe", ignored) != self) continue;
    for (pid_t above = parent_of(process); above > 1; above = parent_of(above))
      if (above == mpirun) {
        ::kill(process, SIGUSR1);
        break;
      }
  }
}

// mpirun refuses root and more ranks than cores unless it is told; in a container both are normal. Its own remarks on an exit status that
// we report ourselves are of no use. All by environment, which other launchers ignore.
void prepare_environment(bool crowded) {
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe",
                           "OMPI_MCA_orte_execute_quiet", "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"})
    ::setenv(name, "1", 0);
  ::setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 0);
  ::setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);  // a rank may have several threads
  if (crowded) ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
}

int start_mpirun(const std::string& mpirun, int ranks, char** argv) {
  std::string np = std::to_string(ranks), self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<char*> command = {const_cast<char*>(mpirun.c_str()), const_cast<char*>("-np"), np.data(), self.data()};
  for (char** argument = argv + 1; *argument; ++argument) command.push_back(*argument);
  command.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw Error(ErrorKind::memory, std::string("cannot start mpirun: ") + std::strerror(errno), mpirun);
  if (child == 0) {
    ::setpgid(0, 0);  // a terminal's Ctrl-C is for us alone
    if (const int nothing = ::open("/dev/null", O_RDONLY); nothing >= 0) ::dup2(nothing, STDIN_FILENO);
    ::execv(mpirun.c_str(), command.data());
    std::_Exit(127);
  }
  struct sigaction action = {};
  action.sa_handler = ask;  // no SA_RESTART: a signal ends the wait below
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) ::sigaction(signal, &action, nullptr);
  int status = 0, answered = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR)
    for (; answered < asked; ++answered) {
      if (answered == 0)
        ask_ranks(child);
      else
        ::kill(child, SIGTERM);  // asked again: mpirun ends them
    }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  throw Error(ErrorKind::rank_lost, fmt::format("mpirun ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status))), mpirun);
}

// One MPI rank: what only this rank knows of ends the others too.
int as_mpi_rank(const config::Config& config, const std::function<int(comm::Comm*)>& body) {
  comm::Choice choice;
  choice.algorithm = comm::algorithm_named(config.parallel.all_reduce);
  const std::unique_ptr<comm::Comm> world = comm::choose(comm::make_mpi(), choice);
  std::string reason;
  int code = 0;
  try {
    return body(world.get());
  } catch (const AgreedError&) {
    throw;
  } catch (const Error& error) {
    reason = std::string("error: ") + error.what(), code = error.exit_code();
  } catch (const std::bad_alloc&) {
    reason = "error: out of memory", code = static_cast<int>(ErrorKind::memory);
  } catch (const std::exception& error) {
    reason = std::string("error: unexpected: ") + error.what(), code = static_cast<int>(ErrorKind::internal);
  }
  world->abort(reason, code);
  return code;
}

}  // namespace

int launched_ranks() { return comm::mpi_launch().size; }
int launched_rank() { return comm::mpi_launch().rank; }

int on_ranks(const config::Config& config, char** argv, const std::function<int(comm::Comm*)>& body) {
  const int ranks = static_cast<int>(config.run.np), cores = available_cores();
  if (launched_ranks() > 1) {
    if (config.parallel.comm == "local")
      throw Error(ErrorKind::usage,
                  fmt::format("parallel.comm = \"local\" means threads of one process, but {} processes were started", launched_ranks()),
                  "", "leave parallel.comm out under mpirun and srun");
    return as_mpi_rank(config, body);
  }
  if (ranks == 1) return body(nullptr);
  if (const std::int64_t wanted = ranks * config.run.threads; wanted > cores)
    fmt::print(stderr, "warning: {} ranks x {} thread{} on {} core{}: expect them to wait for each other\n", ranks, config.run.threads,
               config.run.threads == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
  const std::string mpirun = config.parallel.comm == "local" ? "" : find_mpirun();
  if (config.parallel.comm == "mpi" && (mpirun.empty() || !comm::mpi_built()))
    throw Error(
        ErrorKind::usage,
        mpirun.empty() ? "parallel.comm = \"mpi\", but there is no mpirun in PATH" : "parallel.comm = \"mpi\", but this build has no MPI",
        "", "./setup installs Open MPI; --comm local starts ranks as threads of one process");
  if (!mpirun.empty() && comm::mpi_built()) {
    prepare_environment(ranks > cores);
    return start_mpirun(mpirun, ranks, argv);
  }
  std::atomic<int> code = 0;
  comm::run_local(ranks, [&](comm::Comm& world) {
    const int mine = body(&world);
    if (world.rank() == 0) code = mine;
  });
  return code;
}

}  // namespace tessera::run
