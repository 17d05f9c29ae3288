#include "config/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace tessera::config {
namespace {

using Findings = std::vector<Finding>;

// Each kind of thing that the tp ranks share out is reported once: at the first that does not
// divide.
void tensor_parallel(const models::ModelConfig& m, std::int64_t tp, Findings& out) {
  const std::vector<models::Share> shares = models::family_of(m).shares(m);
  std::int64_t common = 0;
  for (const models::Share& share : shares) common = std::gcd(common, share.size);
  const std::string choose = "choose " + divisors(std::max<std::int64_t>(common, 1), tp);
  std::set<std::string> reported;
  for (const models::Share& share : shares) {
    if (share.size % tp == 0 || !reported.insert(share.keys[0]).second) continue;
    std::vector<std::string> keys = {"parallel.tp"};
    keys.insert(keys.end(), share.keys.begin(), share.keys.end());
    out.push_back(
        {keys, fmt::format("parallel.tp = {} does not divide {}", tp, share.text), choose});
  }
}

void sequence(Config& c, LayoutOutcome& out) {
  Parallel& p = c.parallel;
  const models::ModelConfig& m = c.model;
  const models::Family& family = models::family_of(m);
  if (p.sequence == "megatron" && !family.tokens)
    out.problems.push_back(
        {{"parallel.sequence", "model.family", "model.name"},
         fmt::format(
             "parallel.sequence = \"megatron\": a {} has no sequence of tokens to share out",
             m.family),
         "leave it at none"});
  else if (p.sequence == "megatron" && p.tp == 1)
    out.problems.push_back({{"parallel.sequence", "parallel.tp"},
                            "parallel.sequence = \"megatron\" shares tokens out among the "
                            "tensor-parallel ranks, but parallel.tp = 1",
                            "choose parallel.tp > 1, or none"});
  if (p.sp > 1 && !family.attends_to_all) {
    out.problems.push_back({{"parallel.sp", "model.family", "model.name"},
                            fmt::format("parallel.sp = {}: a {} has no sequence for all heads to "
                                        "attend to; sequence parallelism is for vit",
                                        p.sp, m.family),
                            "leave it at 1 and use dp or tp"});
    return;
  }
  if (p.sp > 1 && p.sequence == "megatron") {
    out.problems.push_back(
        {{"parallel.sp", "parallel.sequence"},
         fmt::format("parallel.sp = {} needs parallel.sequence = \"ulysses\", not \"megatron\"",
                     p.sp),
         "megatron lives on tp: leave sp at 1, or choose ulysses"});
    return;
  }
  if (p.sp > 1 && p.sequence == "none") {
    p.sequence = "ulysses";
    out.notes.push_back(
        fmt::format("parallel.sequence = \"ulysses\", because parallel.sp = {}", p.sp));
  }
  if (p.sp == 1 && p.sequence == "ulysses")
    out.notes.push_back("parallel.sequence = \"ulysses\" shares out nothing with parallel.sp = 1");
  if (p.sp > 1 && m.heads % p.tp == 0 && p.sp > m.heads / p.tp) {
    const std::string per_rank = p.tp == 1 ? fmt::format("model.heads = {}", m.heads)
                                           : fmt::format("model.heads / parallel.tp = {} / {} = {}",
                                                         m.heads, p.tp, m.heads / p.tp);
    out.problems.push_back(
        {{"parallel.sp", "model.heads", "parallel.tp"},
         fmt::format("parallel.sp = {} is more than {}: some ranks would have no head", p.sp,
                     per_rank),
         fmt::format("choose at most {}", m.heads / p.tp)});
  }
}

// "dp x tp x pp = 4 x 5 x 1 = 20"; sp only where it is used.
std::string mesh_text(const Parallel& p, bool with_dp) {
  std::vector<std::string> names = {"tp", "pp"};
  std::vector<std::int64_t> sizes = {p.tp, p.pp};
  if (with_dp) {
    names.insert(names.begin(), "dp");
    sizes.insert(sizes.begin(), p.dp);
  }
  if (p.sp > 1) {
    names.emplace_back("sp");
    sizes.push_back(p.sp);
  }
  double product = 1;  // past 2^53 it is wrong anyway
  for (const std::int64_t size : sizes) product *= static_cast<double>(size);
  return fmt::format("{} = {} = {:.0f}", join(names, " x "), fmt::join(sizes, " x "), product);
}

// Numbers of ranks, or of the one axis that there is, which would go together.
std::string fitting_counts(const Parallel& p, std::int64_t ranks, std::int64_t rest,
                           bool launched) {
  std::string out =
      fmt::format("{} {}, {} or another multiple of {}",
                  launched ? "start as many ranks as" : "choose run.np =", rest, 2 * rest, rest);
  for (const auto& [name, n] : {std::pair("tp", p.tp), {"pp", p.pp}, {"sp", p.sp}})
    if (n == rest) out += fmt::format(", or parallel.{} = {}", name, divisors(ranks, n));
  return out;
}

void mesh(Config& c, const std::function<bool(std::string_view)>& given, int world,
          LayoutOutcome& out) {
  static const std::vector<std::string> keys = {"parallel.dp", "parallel.tp", "parallel.pp",
                                                "parallel.sp", "run.np"};
  Parallel& p = c.parallel;
  if (world > 0 && given("run.np") && c.run.np != world)
    out.problems.push_back({{"run.np"},
                            fmt::format("run.np = {} but {} rank{} started", c.run.np, world,
                                        world == 1 ? " was" : "s were"),
                            "leave run.np out where a launcher starts the ranks"});
  const std::int64_t ranks = world > 0 ? world : given("run.np") ? c.run.np : 0;
  const std::int64_t rest = p.tp * p.pp * p.sp;  // at most 2^48
  const std::string started =
      world > 0 ? fmt::format("{} rank{} started", ranks, ranks == 1 ? " was" : "s were")
                : fmt::format("run.np = {}", ranks);
  const auto whole_mesh = [&](std::string message, std::string advice) {
    out.problems.push_back(
        {.keys = keys, .message = std::move(message), .advice = std::move(advice), .whole = true});
  };
  if (!given("parallel.dp")) {
    if (ranks > 0 && ranks % rest != 0) {
      whole_mesh(
          fmt::format("{} does not divide the number of ranks: {}", mesh_text(p, false), started),
          fitting_counts(p, ranks, rest, world > 0));
      return;
    }
    p.dp = ranks > 0 ? ranks / rest : 1;
  }
  constexpr std::int64_t most_ranks = 65536;
  if (rest > most_ranks || p.dp * rest > most_ranks)
    whole_mesh(fmt::format("{} ranks are out of range", mesh_text(p, true)),
               fmt::format("at most {} ranks make a run", most_ranks));
  else if (ranks > 0 && p.dp * rest != ranks)
    whole_mesh(fmt::format("{} but {}", mesh_text(p, true), started),
               world > 0 ? "" : fmt::format("choose run.np = {}, or leave it out", p.dp * rest));
  else
    c.run.np = p.dp * rest;
  if (c.run.np_min > c.run.np)
    out.problems.push_back(
        {{"run.np_min", "run.np"},
         fmt::format("run.np_min = {} is more than run.np = {}", c.run.np_min, c.run.np),
         "write --np MIN:MAX, the smaller number first"});
}

// Shares of a batch: one per dp rank, and no statistics of a rank's own samples, which would depend
// on the shares.
void shares(const Config& c, LayoutOutcome& out) {
  const Parallel& p = c.parallel;
  const std::vector<double>& list = p.shares.list;
  if (list.empty() && p.shares.word.empty()) return;
  if (!list.empty() && static_cast<std::int64_t>(list.size()) != p.dp)
    out.problems.push_back(
        {{"parallel.weights", "parallel.dp"},
         fmt::format("parallel.weights has {} number{}, but there are {} data-parallel ranks",
                     list.size(), list.size() == 1 ? "" : "s", p.dp),
         "give one share per dp rank, or \"measured\""});
  else if (!list.empty() && *std::max_element(list.begin(), list.end()) <= 0)
    out.problems.push_back({{"parallel.weights"},
                            "parallel.weights gives nobody a sample",
                            "one share at least must be more than 0"});
  const models::Family* family = models::find_family(c.model.family);
  const bool has_batch_norm = family && family->has("batch_norm");
  if (p.dp > 1 && has_batch_norm && c.model.batch_norm != "sync")
    out.problems.push_back({{"parallel.weights", "model.batch_norm"},
                            fmt::format("parallel.weights with model.batch_norm = \"{}\": "
                                        "statistics of a rank's own samples would depend on "
                                        "how many it gets",
                                        c.model.batch_norm),
                            "choose model.batch_norm = \"sync\", or leave parallel.weights out"});
}

}  // namespace

LayoutOutcome resolve_layout(Config& c, const std::function<bool(std::string_view)>& given,
                             int world) {
  LayoutOutcome out;
  const Parallel& p = c.parallel;
  if (models::problems(c.model)
          .empty()) {  // else sizes can be anything, and are complained of elsewhere
    tensor_parallel(c.model, p.tp, out.problems);
    sequence(c, out);
  }
  mesh(c, given, world, out);
  shares(c, out);
  if (p.zero > 0 && p.dp == 1 && p.sp == 1 && p.offload_params == "none")
    out.notes.push_back(fmt::format(
        "parallel.zero = {} shares out nothing: there is one data-parallel rank", p.zero));
  return out;
}

std::string divisors(std::int64_t n, std::int64_t wish) {
  std::vector<std::int64_t> all;
  for (std::int64_t d = 1; d * d <= n; ++d)
    if (n % d == 0) {
      all.push_back(d);
      if (d * d != n) all.push_back(n / d);
    }
  const auto distance = [&](std::int64_t d) {
    return std::abs(
        std::log(static_cast<double>(d) / static_cast<double>(std::max<std::int64_t>(wish, 1))));
  };
  std::sort(all.begin(), all.end(), [&](auto a, auto b) { return distance(a) < distance(b); });
  if (all.size() > 8) all.resize(8);
  std::sort(all.begin(), all.end());
  std::vector<std::string> words;
  for (std::int64_t d : all) words.push_back(std::to_string(d));
  return alternatives(words);
}

std::string mesh_words(const Parallel& p) {
  std::string out;
  for (const auto& [name, n] : {std::pair("pp", p.pp), {"dp", p.dp}, {"sp", p.sp}, {"tp", p.tp}})
    if (n > 1) out += (out.empty() ? "" : " x ") + std::string(name) + std::to_string(n);
  return out;
}

}  // namespace tessera::config
