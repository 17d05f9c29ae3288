// bench comm: every algorithm beside MPI's own collective and beside a plain copy of as many bytes.
// They take turns, so that a busy machine slows all of them alike. Conventions: a time is that of
// the slowest rank; algorithm bandwidth is the bytes of a rank's message over the time, bus
// bandwidth what a ring has to send of them; buffers are what each Comm allocates, in place.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.h"
#include "base/say.h"
#include "comm/choose.h"
#include "comm/mpi_own.h"
#include "ranks/ranks.h"
#include "report/document.h"
#include "report/metrics.h"
#include "verbs/verbs.h"

namespace tessera::run {
namespace {

using nlohmann::ordered_json;
using std::int64_t;

// One line of the table: a Comm and its buffer, or MPI itself, or a copy.
struct CommSide {
  std::string name;
  std::unique_ptr<comm::Comm> comm{};
  std::unique_ptr<comm::Memory> memory{}, other{};
  std::vector<double> us{};
};

// Sizes to measure: 8 bytes to 4 KiB by eights, then by fours; where every rank has a part, of
// equal parts that are whole numbers.
std::vector<int64_t> sizes_of(const BenchOptions& options, int ranks) {
  std::vector<int64_t> out;
  const int64_t most = std::min(options.max_bytes, int64_t{1} << 50);
  for (int64_t bytes = 8; bytes <= most; bytes *= bytes < 4096 ? 8 : 4) {
    const int64_t moved = options.verb == "all_reduce" ? bytes : bytes / 4 / ranks * 4 * ranks;
    if (bytes >= options.min_bytes && moved > 0) out.push_back(moved);
  }
  return out;
}

class Bench {
 public:
  Bench(const BenchOptions& options, comm::Comm& world) : options_(options), world_(world) {
    const bool mpi = world.describe() == "mpi";
    for (const std::string name :
         {"shared", "ring", "ring, bf16", "hierarchical", "hierarchical, bf16"}) {
      if (name.starts_with("hierarchical") && options.machines == 1) continue;
      if (name.ends_with("bf16") && options.verb == "all_gather") continue;  // adds up nothing
      comm::Choice choice;
      choice.algorithm = comm::algorithm_named(name.substr(0, name.find(',')));
      if (name.ends_with("bf16")) choice.across.ring.wire = comm::Wire::bf16;
      if (options.machines > 1)
        choice.machine = fmt::format("machine {}", world.rank() * options.machines / world.size());
      add(name, comm::choose(world.split(0, world.rank()), choice));
    }
    add(mpi ? "mpi, started and waited for" : "local", world.split(0, world.rank()));
    if (mpi) add("mpi", nullptr);
    add("copy", nullptr);
    ranks_ = world.size();
    if (options.verb == "reduce_scatter") verb_ = comm::Verb::reduce_scatter;
    if (options.verb == "all_gather") verb_ = comm::Verb::all_gather;
  }

  // Bytes of the whole message: of each rank's buffer for all_reduce, of all parts side by side for
  // the others.
  void measure(int64_t bytes) {
    const int64_t repeats = options_.repeats > 0
                                ? options_.repeats
                                : std::clamp<int64_t>((int64_t{1} << 30) / bytes, 9, 41);
    const int64_t calls = std::clamp<int64_t>((int64_t{2} << 20) / bytes, 1, 200);
    for (CommSide& side : sides_) side.us.clear();
    for (int64_t repeat = -1; repeat < repeats; ++repeat)  // the first one warms up
      for (CommSide& side : sides_) {
        world_.barrier();
        const auto start = std::chrono::steady_clock::now();
        for (int64_t call = 0; call < calls; ++call) once(side, bytes);
        double us =
            std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
                .count() /
            static_cast<double>(calls);
        world_.all_reduce(std::as_writable_bytes(std::span(&us, 1)), ir::DType::f64,
                          comm::Reduction::max);
        if (repeat >= 0) side.us.push_back(us);
      }
  }

  ordered_json rows(int64_t bytes) const {
    ordered_json out = ordered_json::array();
    const auto reference = std::find_if(sides_.begin(), sides_.end(), [](const CommSide& s) {
      return s.name == "mpi" || s.name == "local";
    });
    const double theirs = report::quantiles(reference->us).median, n = ranks_;
    for (const CommSide& side : sides_) {
      const report::Quantiles q = report::quantiles(side.us);
      const double gbytes = static_cast<double>(bytes) / q.median * 1e-3;
      out.push_back(
          {{"algorithm", side.name},
           {"us", {{"median", q.median}, {"p10", q.p10}, {"p90", q.p90}}},
           {"gbytes", gbytes},
           {"bus_gbytes", gbytes * (verb_ == comm::Verb::all_reduce ? 2 : 1) * (n - 1) / n},
           {"times_faster_than_" + reference->name, theirs / q.median}});
    }
    return out;
  }

  std::map<std::string, std::string> algorithms() const {
    std::map<std::string, std::string> out;
    for (const CommSide& side : sides_)
      if (side.comm) out[side.name] = side.comm->describe();
    return out;
  }

 private:
  const BenchOptions& options_;
  comm::Comm& world_;
  std::vector<CommSide> sides_;
  comm::Verb verb_ = comm::Verb::all_reduce;
  int ranks_ = 1;

  void add(const std::string& name, std::unique_ptr<comm::Comm> comm) {
    const int64_t bytes = options_.max_bytes;
    CommSide side{.name = name, .comm = std::move(comm)};
    side.memory =
        side.comm && !options_.elsewhere ? side.comm->allocate(bytes) : comm::plain_memory(bytes);
    if (name == "copy" || name == "mpi") side.other = comm::plain_memory(bytes);
    std::memset(side.memory->data(), 0,
                static_cast<std::size_t>(bytes));  // pages are given when they are touched
    sides_.push_back(std::move(side));
  }

  void once(CommSide& side, int64_t bytes) {
    const int64_t part = bytes / 4 / ranks_ * 4;
    const comm::Bytes all(
        side.memory->data(),
        static_cast<std::size_t>(verb_ == comm::Verb::all_reduce ? bytes : part * ranks_));
    const comm::Bytes mine =
        all.subspan(static_cast<std::size_t>(part * world_.rank()), static_cast<std::size_t>(part));
    const std::vector<int64_t> counts(static_cast<std::size_t>(ranks_), part);
    if (side.name ==
        "copy") {  // all_reduce: as much is read and written; of the others, what is not in place
      std::memcpy(side.other->data(), all.data(), all.size());
    } else if (side.name == "mpi") {
      const comm::Bytes outside(side.other->data(), mine.size());
      comm::mpi_own(
          verb_,
          verb_ == comm::Verb::all_gather ? comm::ConstBytes(outside) : comm::ConstBytes(all),
          verb_ == comm::Verb::reduce_scatter ? outside : all);
    } else if (verb_ == comm::Verb::all_reduce) {
      side.comm->all_reduce(all, ir::DType::f32);
    } else if (verb_ == comm::Verb::all_gather) {
      side.comm->all_gather(mine, all, counts);
    } else {
      side.comm->reduce_scatter(all, mine, counts, ir::DType::f32);
    }
  }
};

}  // namespace

int bench_comm(const BenchOptions& options, comm::Comm& world) {
  if (world.size() == 1)
    throw Error(ErrorKind::usage, "one rank has nobody to talk to", "", "--np 2");
  const std::vector<int64_t> measured = sizes_of(options, world.size());
  if (measured.empty())
    Ranks(&world).together([&] {
      throw Error(
          ErrorKind::usage,
          fmt::format(
              "there is nothing to measure from --min-bytes {} to --max-bytes {} between {} ranks",
              options.min_bytes, options.max_bytes, world.size()),
          "",
          "sizes are 8, 64, 512 and 4096 bytes, then 16 KiB and four times as much each; "
          "--max-bytes 64KB");
    });
  Bench bench(options, world);
  const bool speaks = world.rank() == 0, table = speaks && !options.json;
  const std::map<std::string, std::string> algorithms = bench.algorithms();
  if (table) {
    for (const auto& [name, how] : algorithms) say(stdout, "{}: {}\n", name, how);
    say(stdout, "\n{:>10}  {:28} {:>10} {:>21} {:>8} {:>8} {:>7}\n", "bytes", options.verb, "us",
        "p10 - p90", "GB/s", "bus", "x");
  }
  ordered_json sizes = ordered_json::array();
  for (const int64_t bytes : measured) {
    bench.measure(bytes);
    const ordered_json rows = bench.rows(bytes);
    sizes.push_back({{"bytes", bytes}, {"rows", rows}});
    for (std::size_t i = 0; table && i < rows.size(); ++i) {
      const ordered_json& row = rows[i];
      say(stdout, "{:>10}  {:28} {:>10.2f} {:>10.2f} -{:>9.2f} {:>8.2f} {:>8.2f} {:>7.2f}\n", bytes,
          row["algorithm"].get<std::string>(), row["us"]["median"].get<double>(),
          row["us"]["p10"].get<double>(), row["us"]["p90"].get<double>(),
          row["gbytes"].get<double>(), row["bus_gbytes"].get<double>(), row.back().get<double>());
    }
    if (table) std::fflush(stdout);
  }
  if (speaks && options.json)
    report::print_document({{"ranks", world.size()},
                            {"machines", options.machines},
                            {"verb", options.verb},
                            {"elsewhere", options.elsewhere},
                            {"algorithms", algorithms},
                            {"sizes", sizes}});
  return 0;
}

}  // namespace tessera::run
