// The networks of a host, and which of them MPI would take. Convention: MPI is asked nothing, since
// it chooses when ranks first talk; what people steer it with is read, as its manual says.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "verbs/doctor/doctor.h"

namespace tessera::run {
namespace {

std::optional<std::uint32_t> address_of(const std::string& text) {
  struct in_addr address {};
  if (::inet_pton(AF_INET, text.c_str(), &address) != 1) return std::nullopt;
  return ntohl(address.s_addr);
}

// One entry of Open MPI's lists: the name of an interface, or the start of its address
// (10.1.0.0/16).
bool is_meant(const std::string& entry, const Interface& interface) {
  const std::size_t slash = entry.find('/');
  if (slash == entry.npos) return entry == interface.name;
  const auto network = address_of(entry.substr(0, slash)), own = address_of(interface.address);
  int bits = -1;
  std::from_chars(entry.data() + slash + 1, entry.data() + entry.size(), bits);
  if (!network || !own || bits < 0 || bits > 32) return false;
  return bits == 0 || (*network ^ *own) >> (32 - bits) == 0;
}

bool is_in(const std::string& list, const Interface& interface) {
  std::istringstream entries(list);
  for (std::string entry; std::getline(entries, entry, ',');)
    if (is_meant(entry, interface)) return true;
  return false;
}

std::string from_environment(const std::string& name) {
  const char* text = std::getenv(name.c_str());
  return text ? text : "";
}

}  // namespace

bool mpi_takes(const Interface& interface, const std::string& mpi, const Setting& setting) {
  if (!mpi.starts_with("Open MPI")) {
    const std::string one = setting("HYDRA_IFACE");
    return one.empty() || one == interface.name;
  }
  if (const std::string list = setting("OMPI_MCA_btl_tcp_if_include"); !list.empty())
    return is_in(list, interface);
  return !is_in(setting("OMPI_MCA_btl_tcp_if_exclude"), interface);
}

std::vector<Interface> interfaces_here(const std::string& mpi) {
  std::vector<Interface> out;
  struct ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return out;
  for (const struct ifaddrs* one = all; one; one = one->ifa_next) {
    if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET || !(one->ifa_flags & IFF_UP) ||
        (one->ifa_flags & IFF_LOOPBACK))
      continue;
    char text[INET_ADDRSTRLEN] = "";
    const auto* address = reinterpret_cast<const struct sockaddr_in*>(one->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text));
    Interface found{one->ifa_name, text, 0};
    std::ifstream speed("/sys/class/net/" + found.name + "/speed");
    if (std::int64_t mbit = 0; speed >> mbit && mbit > 0) found.mbit = mbit;
    found.mpi = mpi_takes(found, mpi, from_environment);
    out.push_back(std::move(found));
  }
  ::freeifaddrs(all);
  return out;
}

}  // namespace tessera::run
