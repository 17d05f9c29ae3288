// tessera doctor: a look at the hosts of a job before it starts.
#include "verbs/doctor/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "base/check.h"
#include "base/say.h"
#include "ranks/hosts.h"
#include "ranks/launch.h"
#include "report/document.h"
#include "verbs/verbs.h"

namespace tessera::run {
namespace {

using nlohmann::ordered_json;

void print_hosts(const std::vector<HostFacts>& hosts) {
  std::size_t width = 4;
  for (const HostFacts& h : hosts) width = std::max(width, h.host.size());
  say(stdout, "{:<{}}  {:>9}  {:>5}  {:>15}  {:>18}  {:>8}  {:>9}  {}\n", "host", width, "cores",
      "load", "memory free GB", "run folder", "GFLOP/s", "clock s", "network");
  for (const HostFacts& h : hosts) {
    std::string networks;
    for (const Interface& i : h.interfaces)
      networks += (networks.empty() ? "" : ", ") + i.name + " " + i.address +
                  (i.mbit > 0 ? fmt::format(" ({} Mb/s)", i.mbit) : "") + (i.mpi ? " for MPI" : "");
    say(stdout, "{:<{}}  {:>9}  {:>5.1f}  {:>15}  {:>18}  {:>8.0f}  {:>+9.3f}  {}\n", h.host, width,
        fmt::format("{} of {}", h.bound, h.cores), h.load,
        fmt::format("{:.1f} of {:.1f}", h.memory_free_gb, h.memory_gb),
        fmt::format("{:.0f} MB/s, {:.0f} GB", h.disk_mb_s, h.disk_free_gb), h.gflops, h.clock_s,
        networks);
  }
  say(stdout, "\n");
  for (const HostFacts& h : hosts)
    say(stdout, "{}: {}\n", h.host,
        h.numa.size() > 1 ? "ranks keep to one of the NUMA nodes with cores " + join(h.numa, "; ")
                          : "one NUMA node, ranks are not placed (run.place = \"cores\" does)");
  const HostFacts& first = hosts.front();
  say(stdout, "tessera {}, {}\n", first.tessera, first.mpi);
  for (const std::string& line : device_lines(hosts)) say(stdout, "{}\n", line);
}

void print_links(const std::vector<HostFacts>& hosts, const Links& links) {
  if (links.pairs.empty()) return;
  say(stdout, "\n{:<40}  {:>10}  {:>8}  {:>13}  {:>8}\n", "link", "us", "GB/s", "all-reduce us",
      "GB/s");
  for (const Link& link : links.pairs)
    say(stdout, "{:<40}  {:>10.1f}  {:>8.3f}  {:>13.1f}  {:>8.3f}\n",
        fmt::format("{} {} - {} {}", hosts[static_cast<std::size_t>(link.from)].host, link.from,
                    hosts[static_cast<std::size_t>(link.to)].host, link.to),
        link.latency_us, link.gbyte_s, link.all_reduce_us, link.all_reduce_gbyte_s);
  say(stdout, "{:<40}  {:>10}  {:>8}  {:>13.1f}  {:>8.3f}\n", "all-reduce of all (8 bytes; 16 MiB)",
      "", "", links.all_reduce_us, links.all_reduce_gbyte_s);
}

ordered_json document_of(const std::vector<HostFacts>& hosts, const Links& links,
                         const std::vector<DoctorFinding>& findings, bool ok) {
  ordered_json out = {{"ok", ok}, {"hosts", ordered_json::array()}};
  for (const HostFacts& h : hosts) out["hosts"].push_back(to_json(h));
  out["links"] = ordered_json::array();
  for (const Link& l : links.pairs)
    out["links"].push_back({{"from", l.from},
                            {"to", l.to},
                            {"latency_us", l.latency_us},
                            {"gbyte_s", l.gbyte_s},
                            {"all_reduce_us", l.all_reduce_us},
                            {"all_reduce_gbyte_s", l.all_reduce_gbyte_s}});
  out["all_reduce"] = {{"latency_us", links.all_reduce_us}, {"gbyte_s", links.all_reduce_gbyte_s}};
  out["findings"] = ordered_json::array();
  for (const DoctorFinding& f : findings)
    out["findings"].push_back(
        {{"kind", f.problem ? "problem" : "note"}, {"text", f.text}, {"help", f.advice}});
  return out;
}

std::vector<std::string> words(const char* text) {
  std::vector<std::string> out;
  std::istringstream all(text ? text : "");
  for (std::string word; all >> word;) out.push_back(word);
  return out;
}

}  // namespace

std::vector<std::string> device_lines(const std::vector<HostFacts>& hosts) {
  const std::vector<std::string>& first = hosts.front().devices;
  if (std::all_of(hosts.begin(), hosts.end(),
                  [&](const HostFacts& h) { return h.devices == first; }))
    return first;
  std::vector<std::string> out;
  for (const HostFacts& h : hosts)
    out.push_back(h.host + ": " + (h.devices.empty() ? "no devices" : join(h.devices, "; ")));
  return out;
}

int examine(const DoctorOptions& options, comm::Comm* world) {
  const Ranks ranks(world);
  const std::vector<HostFacts> hosts = gather_facts(ranks, options.folder);
  const Links links = measure_links(ranks, !options.json && ranks.size() > 2);
  const std::vector<DoctorFinding> findings =
      judge_hosts(hosts, links, words(std::getenv(silent_hosts_variable)));
  const bool ok = std::none_of(findings.begin(), findings.end(),
                               [](const DoctorFinding& f) { return f.problem; });
  if (!ranks.first()) return ok ? 0 : 1;
  if (options.json) {
    report::print_document(document_of(hosts, links, findings, ok));
    return ok ? 0 : 1;
  }
  print_hosts(hosts);
  print_links(hosts, links);
  say(stdout, "\n");
  for (const DoctorFinding& f : findings)
    say(stdout, "{}: {}\n   help: {}\n", f.problem ? "problem" : "note", f.text, f.advice);
  say(stdout, "{}\n", ok ? "nothing has to be mended" : "mend the problems before a long job");
  return ok ? 0 : 1;
}

int doctor(const DoctorOptions& options, char** argv) {
  config::Config config;
  config.run.hostfile = options.hostfile;
  config.run.out = options.folder;
  config.run.np = options.ranks;
  config.parallel.hang_s = 120;
  config.run.place = "none";  // to see what a launcher and the system leave to it
  return on_each_host(config, argv, [&](comm::Comm* world) { return examine(options, world); });
}

}  // namespace tessera::run
