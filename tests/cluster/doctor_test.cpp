// doctor: what it makes of facts, and the verb itself on this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "app/binary.h"
#include "verbs/doctor/doctor.h"

namespace tessera::test::doctor_test {
namespace {

using namespace tessera::run;

std::vector<HostFacts> hosts(int count) {
  std::vector<HostFacts> out;
  for (int i = 0; i < count; ++i) {
    HostFacts h;
    h.host = "node" + std::to_string(i);
    h.machine = h.host;
    h.tessera = "1.0";
    h.binary = "abc";
    h.mpi = "Open MPI v4.1.4";
    h.cores = h.bound = 8;
    h.cores_bound = "0-7";
    h.load = 0.1;
    h.memory_gb = 64;
    h.memory_free_gb = 60;
    h.disk_free_gb = 100;
    h.disk_mb_s = 300;
    h.sees_folder = true;
    h.gflops = 500;
    h.interfaces = {{"eth0", "10.0.0." + std::to_string(i + 1), 10000}};
    out.push_back(h);
  }
  return out;
}

Links links(int count) {
  Links out;
  for (int from = 0; from < count; ++from)
    for (int to = from + 1; to < count; ++to) out.pairs.push_back({from, to, 20, 1.1, 40, 0.9});
  return out;
}

// The one finding that there is, as "problem: text".
std::string only(const std::vector<HostFacts>& facts, const Links& between,
                 const std::vector<std::string>& silent = {}) {
  const auto found = judge_hosts(facts, between, silent);
  EXPECT_EQ(found.size(), 1u);
  for (const DoctorFinding& f : found) EXPECT_NE(f.advice, "") << f.text;
  return found.empty() ? "" : (found[0].problem ? "problem: " : "note: ") + found[0].text;
}

TEST(Doctor, NothingIsSaidOfAGoodCluster) {
  EXPECT_TRUE(judge_hosts(hosts(4), links(4), {}).empty());
  EXPECT_TRUE(judge_hosts(hosts(1), Links(), {}).empty());
  EXPECT_TRUE(judge_hosts(hosts(2), links(2), {}).empty()) << "one link has none beside it";
}

TEST(Doctor, WhatOneHostHasThatTheOthersHaveNot) {
  const auto with = [](auto change) {
    std::vector<HostFacts> all = hosts(3);
    change(all[2]);
    return only(all, links(3));
  };
  EXPECT_EQ(with([](HostFacts& h) { h.mpi = "MPICH"; }),
            "problem: node2 has another MPI than node0, node1: MPICH, not Open MPI v4.1.4");
  EXPECT_EQ(with([](HostFacts& h) { h.binary = "abd"; }),
            "problem: node2 has another program than node0, node1: abd, not abc");
  EXPECT_EQ(with([](HostFacts& h) { h.clock_s = -90; }),
            "problem: the clock of node2 is 90.0 s behind that of node0");
  EXPECT_EQ(with([](HostFacts& h) { h.sees_folder = false; }),
            "problem: node2 does not see what node0 writes in the run folder");
  EXPECT_EQ(with([](HostFacts& h) { h.disk_free_gb = 0.25; }),
            "problem: the run folder has 0.25 GB of room on node2");
  EXPECT_EQ(with([](HostFacts& h) { h.disk_mb_s = 20; }),
            "problem: node2 writes 20 MB/s to the run folder, the others 300");
  EXPECT_EQ(with([](HostFacts& h) { h.gflops = 200; }),
            "problem: the cores of node2 do 200 GFLOP/s, those of the others 500");
  EXPECT_EQ(with([](HostFacts& h) { h.load = 7; }),
            "note: node2 is busy: a load of 7.0 on 8 cores");
  EXPECT_EQ(with([](HostFacts& h) { h.memory_free_gb = 1; }),
            "note: node2 has 1.0 of 64.0 GB of memory left");
  EXPECT_EQ(with([](HostFacts& h) {
              h.bound = 2;
              h.cores_bound = "0-1";
            }),
            "note: node2 may use 2 of its 8 cores (0-1)");
  EXPECT_EQ(with([](HostFacts& h) { h.devices = {"driver: 570"}; }),
            "note: hosts have different devices or drivers");
  EXPECT_EQ(with([](HostFacts& h) {
              h.interfaces.push_back({"docker0", "172.17.0.1", 0});
            }),
            "note: node2 has several networks: eth0, docker0");
  EXPECT_EQ(with([](HostFacts& h) { h.interfaces[0].mpi = false; }),
            "problem: MPI would take no network of node2: it has eth0");
  EXPECT_EQ(with([](HostFacts& h) { h.interfaces.clear(); }),
            "problem: node2 has no network interface but the loopback");
  EXPECT_EQ(only(hosts(2), links(2), {"node2", "node3"}), "problem: node2, node3 did not answer");
}

TEST(Doctor, TheNetworksThatMpiWouldTake) {
  const std::vector<Interface> all = {
      {"eth0", "10.1.2.3", 0}, {"eth1", "10.1.130.3", 0}, {"docker0", "172.17.0.1", 0}};
  const auto taken = [&](const std::string& mpi, std::map<std::string, std::string> variables) {
    std::string out;
    for (const Interface& i : all)
      if (mpi_takes(i, mpi, [&](const std::string& name) { return variables[name]; }))
        out += (out.empty() ? "" : " ") + i.name;
    return out;
  };
  const std::string open = "Open MPI v4.1.4", include = "OMPI_MCA_btl_tcp_if_include",
                    exclude = "OMPI_MCA_btl_tcp_if_exclude", hydra = "HYDRA_IFACE";
  EXPECT_EQ(taken(open, {}), "eth0 eth1 docker0");
  EXPECT_EQ(taken(open, {{include, "eth1"}}), "eth1");
  EXPECT_EQ(taken(open, {{include, "docker0,eth0"}}), "eth0 docker0");
  EXPECT_EQ(taken(open, {{include, "eth"}}), "") << "names are whole";
  EXPECT_EQ(taken(open, {{include, "10.1.0.0/16"}}), "eth0 eth1");
  EXPECT_EQ(taken(open, {{include, "10.1.0.0/17"}}), "eth0");
  EXPECT_EQ(taken(open, {{include, "10.1.130.3/32"}}), "eth1");
  EXPECT_EQ(taken(open, {{include, "0.0.0.0/0"}}), "eth0 eth1 docker0");
  EXPECT_EQ(taken(open, {{include, "10.1.0.0/x,none/8"}}), "") << "what is no network";
  EXPECT_EQ(taken(open, {{exclude, "lo,172.17.0.0/16"}}), "eth0 eth1");
  EXPECT_EQ(taken(open, {{include, "eth0"}, {exclude, "eth0"}}), "eth0") << "the first counts";
  EXPECT_EQ(taken(open, {{hydra, "eth1"}}), "eth0 eth1 docker0") << "of another MPI";
  EXPECT_EQ(taken("MPICH Version: 4.0.2", {}), "eth0 eth1 docker0");
  EXPECT_EQ(taken("MPICH Version: 4.0.2", {{hydra, "eth1"}, {include, "eth0"}}), "eth1");
}

TEST(Doctor, DevicesOfEachHostWhereTheyDiffer) {
  std::vector<HostFacts> all = hosts(3);
  EXPECT_TRUE(device_lines(all).empty());
  for (HostFacts& h : all) h.devices = {"gpu: A", "driver: 570"};
  EXPECT_EQ(device_lines(all), (std::vector<std::string>{"gpu: A", "driver: 570"}));
  all[1].devices[1] = "driver: 550";
  all[2].devices.clear();
  EXPECT_EQ(device_lines(all),
            (std::vector<std::string>{"node0: gpu: A; driver: 570", "node1: gpu: A; driver: 550",
                                      "node2: no devices"}));
}

// A host that is slow because of other work is no reason for a script to stop.
TEST(Doctor, ABusyHostGetsNotesAlone) {
  std::vector<HostFacts> all = hosts(3);
  all[2].load = 12;
  all[2].disk_mb_s = 20;
  all[2].gflops = 100;
  const auto found = judge_hosts(all, links(3), {});
  ASSERT_EQ(found.size(), 3u);
  for (const DoctorFinding& f : found) {
    EXPECT_FALSE(f.problem) << f.text;
    EXPECT_NE(f.text.find("busy"), f.text.npos) << f.text;
  }
}

TEST(Doctor, RanksOfOneMachineOnTheSameCores) {
  std::vector<HostFacts> all = hosts(2);
  for (HostFacts& h : all) {
    h.machine = "one";
    h.bound = 1;
    h.cores_bound = "0";
  }
  EXPECT_EQ(only(all, links(2)), "problem: ranks of node0 are bound to the same cores: 0");
  all[1].cores_bound = "1";
  EXPECT_TRUE(judge_hosts(all, links(2), {}).empty());
}

TEST(Doctor, ASlowLinkAndAHostWhoseLinksAreAllSlow) {
  Links one = links(4);
  one.pairs[1].gbyte_s = 0.1;  // 0 - 2
  EXPECT_EQ(only(hosts(4), one),
            "problem: the link between node0 and node2 is slow: 0.100 GB/s and 20 us, where "
            "others have 1.100 GB/s and 20 us");
  Links late = links(4);
  late.pairs[5].latency_us = 900;  // 2 - 3
  EXPECT_EQ(only(hosts(4), late),
            "problem: the link between node2 and node3 is slow: 1.100 GB/s and 900 us, where "
            "others have 1.100 GB/s and 20 us");
  for (const int count : {3, 4, 6}) {
    Links all = links(count);
    for (Link& link : all.pairs)
      if (link.to == 2 || link.from == 2) link.gbyte_s = 0.125;
    EXPECT_EQ(only(hosts(count), all),
              "problem: every link of node2 is slow: at most 0.125 GB/s, where others have 1.100")
        << count;
  }
}

TEST(Doctor, FactsTravelWhole) {
  HostFacts facts = hosts(1)[0];
  facts.devices = {"driver: 570"};
  facts.clock_s = 0.5;
  facts.clock_off_s = 0.25;
  facts.interfaces.push_back({"docker0", "172.17.0.1", 0, false});
  EXPECT_EQ(to_json(facts_from(json::parse(to_json(facts).dump()))), to_json(facts));
}

TEST(Doctor, TheVerbOnThisMachine) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const fs::path folder = scratch() / "doctor";
  fs::create_directories(folder);
  const Result r = tessera::test::run("doctor --np 2 --json --out " + folder.string());
  const json document = json::parse(r.out, nullptr, false);
  ASSERT_TRUE(document.is_object()) << r.out << r.err;
  const auto is_problem = [](const json& f) { return f["kind"] == "problem"; };
  const bool problems =
      std::any_of(document["findings"].begin(), document["findings"].end(), is_problem);
  EXPECT_EQ(r.code, problems ? 1 : 0) << r.out;
  EXPECT_EQ(document["ok"], !problems);
  ASSERT_EQ(document["hosts"].size(), 2u);
  ASSERT_EQ(document["links"].size(), 1u);
  for (const json& host : document["hosts"]) {
    EXPECT_TRUE(host["sees_folder"]) << host;
    for (const char* key : {"cores", "bound", "memory_gb", "disk_free_gb", "disk_mb_s", "gflops"})
      EXPECT_GT(host[key].get<double>(), 0) << key;
    EXPECT_EQ(host["binary"].get<std::string>().size(), 16u);
  }
  for (const json& one : document["hosts"][0]["interfaces"])
    EXPECT_TRUE(one["mpi"].is_boolean()) << one;
  for (const char* key : {"latency_us", "gbyte_s", "all_reduce_us", "all_reduce_gbyte_s"})
    EXPECT_GT(document["links"][0][key].get<double>(), 0) << key;
  EXPECT_GT(document["all_reduce"]["gbyte_s"].get<double>(), 0);
  EXPECT_TRUE(fs::is_empty(folder)) << "nothing is left";
  // The table says it of each network, and whoever excludes all of them sees none for MPI.
  const char* networks = "OMPI_MCA_btl_tcp_if_include";
  ::setenv(networks, "192.0.2.255/32", 1);
  const Result none = tessera::test::run("doctor --np 1 --out " + folder.string());
  ::unsetenv(networks);
  EXPECT_NE(none.out.find("cores"), none.out.npos) << none.err;
  EXPECT_EQ(none.out.find("for MPI"), none.out.npos) << none.out;
  const Result missing = tessera::test::run("doctor --hostfile " + (folder / "none").string());
  EXPECT_NE(missing.code, 0);
  EXPECT_NE(missing.err.find("none"), missing.err.npos) << missing.err;
}

// Each pair is measured once, and both know which of them they are in every round.
TEST(Doctor, EveryPairOfAnyNumberOfRanks) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const fs::path folder = scratch() / "doctor_pairs";
  fs::create_directories(folder);
  for (const std::size_t ranks : {3, 4}) {
    const Result r = tessera::test::run("doctor --np " + std::to_string(ranks) + " --json --out " +
                                        folder.string());
    const json document = json::parse(r.out, nullptr, false);
    ASSERT_TRUE(document.is_object()) << r.out << r.err;
    std::set<std::pair<int, int>> pairs;
    for (const json& link : document["links"]) {
      EXPECT_LT(link["from"], link["to"]);
      EXPECT_GT(link["all_reduce_gbyte_s"].get<double>(), 0) << link;
      pairs.emplace(link["from"], link["to"]);
    }
    EXPECT_EQ(document["links"].size(), ranks * (ranks - 1) / 2);
    EXPECT_EQ(pairs.size(), ranks * (ranks - 1) / 2);
  }
}

}  // namespace
}  // namespace tessera::test::doctor_test
