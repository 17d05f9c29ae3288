#include "ranks/carrier.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/process.h"
#include "config/devices.h"
#include "ranks/ranks.h"

namespace tessera::run {
namespace {

constexpr char separator = '\x1f';

bool cards_may_be_shared() {
  const char* given = std::getenv(shared_card_variable);
  return given && std::string_view(given) == "1";
}

// Gradients in fewer bits are encoded by the host; those of powersgd are ordinary tensors.
bool encoded_by_the_host(const config::Config& config) {
  const std::string& how = config.parallel.compress;
  return how != "none" && !how.empty() && !how.starts_with("powersgd");
}

Error sharing(const std::string& found, int cards) {
  return Error(ErrorKind::usage,
               "parallel.comm = \"nccl\" needs a card for every rank, but " + found,
               "parallel.comm",
               fmt::format("--comm mpi lets ranks share a card and stages their messages through "
                           "the host; or start {} rank{}",
                           std::max(1, cards), cards > 1 ? "s" : ""));
}

struct Obstacle {
  std::string why;  // empty: there is none
  bool sharing = false;
};

Obstacle obstacle_in(const std::vector<RankCard>& all) {
  for (std::size_t r = 0; r < all.size(); ++r)
    if (!all[r].without_nccl.empty())
      return {fmt::format("rank {} ({}) has none: {}", r, all[r].host, all[r].without_nccl)};
  for (std::size_t r = 1; r < all.size(); ++r)
    if (all[r].version != all[0].version)
      return {fmt::format("rank 0 has NCCL {} and rank {} ({}) has {}", all[0].version, r,
                          all[r].host, all[r].version)};
  std::map<std::pair<std::string, std::string>, std::size_t> owner;
  for (std::size_t r = 0; r < all.size() && !cards_may_be_shared(); ++r) {
    const auto [at, is_new] = owner.try_emplace({all[r].host, all[r].card}, r);
    if (!is_new)
      return {fmt::format("ranks {} and {} share a card of {}", at->second, r, all[r].host), true};
  }
  return {};
}

}  // namespace

Carriage choose_carrier(const config::Config& config, const std::vector<RankCard>& all) {
  const std::string& asked = config.parallel.comm;
  if (!config::any_on(config, "cuda") || all.size() < 2) return {};
  if (config::mixed(config))
    return {exec::Carrier::host, "through the host: not every rank has a card"};
  if (asked == "local" || asked == "mpi")
    return {exec::Carrier::host, "through the host, as parallel.comm asks"};
  if (encoded_by_the_host(config))
    return {exec::Carrier::host,
            fmt::format("through the host, which encodes gradients (parallel.compress = {})",
                        config.parallel.compress)};
  const Obstacle found = obstacle_in(all);
  if (found.why.empty()) return {exec::Carrier::nccl, "NCCL " + all[0].version};
  if (asked != "nccl") return {exec::Carrier::host, "through the host: no NCCL, " + found.why};
  if (found.sharing) throw sharing(found.why, static_cast<int>(all.size()) - 1);
  throw Error(ErrorKind::device, "parallel.comm = \"nccl\", but " + found.why, "parallel.comm",
              "install the same NCCL (libnccl2) everywhere, or --comm mpi stages messages through "
              "the host");
}

Carriage agree_on_carrier(const config::Config& config, comm::Comm* world) {
  if (!config::any_on(config, "cuda") || !world || world->size() < 2) return {};
  if (config::mixed(config)) return choose_carrier(config, std::vector<RankCard>(2));
  const exec::DeviceInfo info = exec::device_info("cuda", 1);
  const Ranks ranks(world);
  std::string mine;
  ranks.together([&] {  // a rank without a card says so here
    for (const std::string& text : {host_name(), info.own_card(), info.without_nccl(), info.nccl()})
      mine += text + separator;
  });
  std::vector<RankCard> all;
  for (const std::string& text : ranks.gather_text(mine)) {
    std::vector<std::string> words;
    for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1)
      words.push_back(text.substr(at, (end = text.find(separator, at)) - at));
    all.push_back({.host = words.at(0),
                   .card = words.at(1),
                   .without_nccl = words.at(2),
                   .version = words.at(3)});
  }
  Carriage out;
  ranks.together([&] { out = choose_carrier(config, all); });
  return out;
}

void check_devices(const config::Config& config, comm::Comm* world) {
  if (!world || !config::mixed(config)) return;
  const std::string device = config::device_of(config, world->rank());
  Ranks(world).together_telling_all([&] {
    if (const std::string why = exec::lacks(device, config.precision.dtype); !why.empty())
      throw Error(ErrorKind::device, fmt::format("{} on {}: {}", device, host_name(), why),
                  "run.device", "choose devices that are there, or another --dtype");
  });
}

void check_cards_before_launch(const config::Config& config, int ranks) {
  if (!config::all_on(config, "cuda") || config.parallel.comm != "nccl" || ranks < 2) return;
  const exec::DeviceInfo info = exec::device_info("cuda", 1);
  if (const std::string why = info.without_nccl(); !why.empty())
    throw Error(ErrorKind::device, "parallel.comm = \"nccl\", but " + why, "parallel.comm",
                "install libnccl2, or --comm mpi stages messages through the host");
  if (cards_may_be_shared()) return;
  const pid_t child = ::fork();
  if (child == 0) {
    int cards = 0;
    try {
      cards = info.own_card().empty() ? 0 : info.count();
    } catch (const std::exception&) {  // the ranks will say what it is
    }
    ::_exit(std::clamp(cards, 0, 250));
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return;
  const int cards = WEXITSTATUS(status);
  if (cards == 0 || ranks <= cards) return;
  throw sharing(fmt::format("there {} {} card{} here and {} ranks", cards == 1 ? "is" : "are",
                            cards, cards == 1 ? "" : "s", ranks),
                cards);
}

}  // namespace tessera::run
