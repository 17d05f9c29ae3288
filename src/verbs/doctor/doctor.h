// `tessera doctor`: facts about a cluster and the judgement of them. Convention: facts are gathered
// by one rank on each host (facts.cpp) and between them (links.cpp); the judgement is a pure
// function of them (verdict.cpp), so that a script, a table and a test see the same.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ranks/ranks.h"

namespace tessera::run {

struct Interface {
  std::string name, address;
  std::int64_t mbit = 0;  // of the link, as the system says it; 0: it does not
  bool mpi = true;        // whether MPI would take it
};
using Setting = std::function<std::string(const std::string&)>;  // a variable; empty: not set
// As OMPI_MCA_btl_tcp_if_include and _exclude say it (`mpi`: the library's name), or HYDRA_IFACE.
bool mpi_takes(const Interface& interface, const std::string& mpi, const Setting& setting);
std::vector<Interface> interfaces_here(const std::string& mpi);  // without the loopback

// Facts that one host reports about itself.
struct HostFacts {
  std::string host, machine;            // its name; what tells machines apart
  std::string tessera, binary, mpi;     // version, hash of the program, library
  double clock_s = 0, clock_off_s = 0;  // ahead of the first host's, and how sure that is
  int cores = 0, bound = 0;             // of the machine; that this process may use
  std::string cores_bound;              // which: "0-3,8"
  std::vector<std::string> numa;        // the same of each NUMA node
  double load = 0;                      // of the last minute
  double memory_gb = 0, memory_free_gb = 0;
  double disk_free_gb = 0, disk_mb_s = 0;  // of the run folder
  bool sees_folder = false;                // what the first host wrote there
  double gflops = 0;                       // of its cores, measured
  std::vector<std::string> devices;        // "gpu: NVIDIA H200", "driver: 570.1"
  std::vector<Interface> interfaces;       // without the loopback
};
nlohmann::ordered_json to_json(const HostFacts& facts);
HostFacts facts_from(const nlohmann::json& json);
// The lines of the table about devices: once where all hosts have the same, else for each.
std::vector<std::string> device_lines(const std::vector<HostFacts>& hosts);
// All ranks call it, each for its host; `folder`: where a run would be. What all of them say.
std::vector<HostFacts> gather_facts(const Ranks& ranks, const std::string& folder);

struct Link {
  int from = 0, to = 0;                              // hosts, by their place
  double latency_us = 0, gbyte_s = 0;                // of messages
  double all_reduce_us = 0, all_reduce_gbyte_s = 0;  // of the two alone, as in Links
};
struct Links {
  std::vector<Link> pairs;
  double all_reduce_us = 0;       // of 8 bytes
  double all_reduce_gbyte_s = 0;  // bytes of a rank over the time, of a large one
};
// The speed of the best quarter, which is what the network can do: a host whose links are all slow
// makes many of them.
double usual_gbyte_s(const std::vector<Link>& links);
inline constexpr double slow_link = 0.5;  // of that speed; what has less is slow
// Every pair of ranks, one pair after the other. `progress`: a line on stderr for people.
Links measure_links(const Ranks& ranks, bool progress);

struct DoctorFinding {
  bool problem = false;  // otherwise a note
  std::string text, advice;
};
// `silent`: hosts that were named and did not answer.
std::vector<DoctorFinding> judge_hosts(const std::vector<HostFacts>& hosts, const Links& links,
                                       const std::vector<std::string>& silent);

}  // namespace tessera::run
