// The hosts that a launcher starts ranks on: a hostfile, or what Slurm gave to this job; and which
// of them answer. Convention: an empty list means that nobody said, and mpirun decides; order is
// that of the file, and the first hosts get the first ranks.
#pragma once

#include <sys/types.h>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::run {

struct Host {
  std::string name;
  int slots = 1;  // ranks that it has room for
  bool operator==(const Host&) const = default;
};

// Lines "node1 slots=4" (Open MPI), "node1:4" (MPICH) or "node1"; # begins a comment. A host that
// is named again gets more slots. Error(usage) with the line that cannot be read.
std::vector<Host> read_hosts(std::string_view text, const std::string& file);
// "2(x3),1", as Slurm writes how many tasks each node has; empty: it is something else.
std::vector<int> slurm_counts(std::string_view text);
// Hosts of `hostfile`; without one, those of the Slurm job that this process runs in, if any.
std::vector<Host> hosts_of(const std::string& hostfile);

int slots_of(const std::vector<Host>& hosts);
std::string hostfile_text(const std::vector<Host>& hosts, bool open_mpi);
std::string names_of(const std::vector<Host>& hosts);  // "node1, node2"

// Whether it is Open MPI's mpirun: its arguments and MPICH's differ.
bool is_open_mpi(const std::string& mpirun);
// Writes the list of hosts into this folder and gives the arguments that name it; Error(disk) where
// that cannot be done, since mpirun would start all ranks here.
std::vector<std::string> write_hostfile(const std::vector<Host>& hosts,
                                        const std::filesystem::path& folder, bool open_mpi);

// Asks hosts whether they start a process, all at once, the way in which ranks are started: by
// mpirun. Nothing waits: poll() says when it is known.
class HostProbe {
 public:
  HostProbe(std::string mpirun, std::vector<Host> hosts, std::chrono::seconds patience);
  ~HostProbe();
  HostProbe(const HostProbe&) = delete;
  HostProbe& operator=(const HostProbe&) = delete;

  // Nothing while some have neither answered nor had their time; then those that answer.
  std::optional<std::vector<Host>> poll();
  std::vector<Host> wait();

 private:
  struct Asked {
    Host host;
    pid_t process = -1;  // -1: known
    bool answers = false;
  };
  std::vector<Asked> asked_;
  std::chrono::steady_clock::time_point until_;
};

}  // namespace tessera::run
