#include "verbs/bench_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"
#include "config/layout.h"
#include "session/init.h"

namespace tessera::run {

using nlohmann::ordered_json;

std::vector<RankUse> gather_use(const Ranks& ranks, const RankUse& mine) {
  std::vector<double> row = {static_cast<double>(mine.peak_bytes),
                             mine.flops};  // bytes are whole far beyond any machine's
  for (const comm::Traffic::Row& verb : mine.traffic.rows) {
    row.push_back(static_cast<double>(verb.count));
    row.push_back(static_cast<double>(verb.bytes));
  }
  const std::vector<double> all = ranks.gather(row);
  std::vector<RankUse> out(static_cast<std::size_t>(ranks.size()));
  for (std::size_t r = 0; r < out.size(); ++r) {
    const double* at = &all[r * row.size()];
    out[r].peak_bytes = static_cast<std::int64_t>(*at++);
    out[r].flops = *at++;
    for (comm::Traffic::Row& verb : out[r].traffic.rows) {
      verb.count = static_cast<std::int64_t>(*at++);
      verb.bytes = static_cast<std::int64_t>(*at++);
    }
  }
  return out;
}

RankUses sum_up(const std::vector<RankUse>& ranks) {
  RankUses out;
  for (const RankUse& rank : ranks) {
    out.flops += rank.flops;
    out.peak_bytes = std::max(out.peak_bytes, rank.peak_bytes);
    if (rank.traffic.total().bytes > out.traffic.total().bytes) out.traffic = rank.traffic;
  }
  return out;
}

std::string layout_heading(const config::Config& config) {
  const config::Parallel& p = config.parallel;
  std::string out = config::mesh_words(p);
  if (!out.empty()) out += fmt::format(", {} ranks x ", config.run.np);
  return out + fmt::format("{} thread{}", config.run.threads, config.run.threads == 1 ? "" : "s");
}

ordered_json layout_json(const config::Config& config) {
  const config::Parallel& p = config.parallel;
  return {{"dp", p.dp}, {"tp", p.tp}, {"sp", p.sp}, {"pp", p.pp}, {"ranks", config.run.np}};
}

ordered_json traffic_json(const comm::Traffic& traffic) {
  ordered_json out = {{"total", traffic.total().bytes}};
  for (int v = 0; v < comm::verb_count; ++v)
    if (const comm::Traffic::Row& row = traffic[static_cast<comm::Verb>(v)]; row.count > 0)
      out[std::string(comm::name(static_cast<comm::Verb>(v)))] = row.bytes;
  return out;
}

ordered_json ranks_json(const std::vector<RankUse>& ranks) {
  ordered_json out = ordered_json::array();
  for (const RankUse& rank : ranks)
    out.push_back({{"peak_bytes", rank.peak_bytes},
                   {"flops", rank.flops},
                   {"comm_bytes", rank.traffic.total().bytes}});
  return out;
}

std::string use_line(const std::vector<RankUse>& ranks, const std::string& per) {
  const auto amount = [](std::int64_t bytes) {
    return bytes < 1'000'000 ? fmt::format("{:.2f} kB", static_cast<double>(bytes) * 1e-3)
                             : fmt::format("{:.2f} MB", static_cast<double>(bytes) * 1e-6);
  };
  const comm::Traffic traffic = sum_up(ranks).traffic;
  const ordered_json rows = traffic_json(traffic);
  std::string verbs;
  for (const auto& [verb, bytes] : rows.items())
    if (verb != "total")
      verbs += fmt::format("{}{} {}", verbs.empty() ? "" : ", ", verb,
                           amount(bytes.get<std::int64_t>()));
  std::int64_t least = ranks[0].peak_bytes, most = 0;
  for (const RankUse& rank : ranks) {
    least = std::min(least, rank.peak_bytes);
    most = std::max(most, rank.peak_bytes);
  }
  return fmt::format("a rank hands over {} per {}{}; planned memory per rank {}{}",
                     amount(traffic.total().bytes), per, verbs.empty() ? "" : " (" + verbs + ")",
                     amount(least) == amount(most) ? "" : amount(least) + " to ", amount(most));
}

std::vector<std::uint8_t> random_pixels(const models::ModelConfig& model, std::int64_t count) {
  std::vector<std::uint8_t> pixels(
      static_cast<std::size_t>(count * model.image_h * model.image_w * model.channels));
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<std::uint8_t>(random_bits(Key{1}, i));
  return pixels;
}

double difference_from_one_rank(const config::Config& config, std::span<const std::uint8_t> images,
                                const std::vector<double>& logits) {
  config::Config alone = config;
  alone.parallel = {};
  alone.run.np = 1;
  Session session(alone);
  session.load(initial_weights(static_cast<std::uint64_t>(config.run.seed)));
  const std::vector<double> reference =
      session.predict(images, static_cast<std::int64_t>(logits.size()) / config.model.classes);
  CHECK(reference.size() == logits.size(), "a model has as many logits on one rank as on several");
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || std::isnan(reference[i])) return std::nan("");
    difference = std::max(difference, std::abs(logits[i] - reference[i]));
    largest = std::max(largest, std::abs(reference[i]));
  }
  return difference / largest;
}

}  // namespace tessera::run
