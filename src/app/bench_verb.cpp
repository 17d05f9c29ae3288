#include "app/bench_verb.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/arguments.h"
#include "base/check.h"
#include "base/say.h"
#include "compile/pipeline.h"
#include "config/reader.h"
#include "ranks/launch.h"
#include "verbs/verbs.h"

namespace tessera::app {
namespace {

struct Bench {
  ConfigArguments config;
  run::BenchOptions options;
  std::string workers;
  CLI::Option* batch = nullptr;
};

const config::Override* winning(const std::vector<config::Override>& overrides,
                                std::string_view key) {
  const config::Override* found = nullptr;
  for (const config::Override& o : overrides)  // the one that wins: the last, and a flag over --set
    if (o.key == key && (!found || o.is_flag || !found->is_flag)) found = &o;
  return found;
}

// The configuration, with options.batch settled: --batch is what an update (or a run of inference)
// is made of, and wins over a file as any flag does; without it the batch is the configured one,
// and 8 where none is.
config::Config load_with_batch(Bench& bench, config::Purpose purpose, int world, bool speaks) {
  std::vector<config::Override> overrides = bench.config.overrides();
  const config::Override *global = winning(overrides, "batch.global"),
                         *micro = winning(overrides, "batch.micro"),
                         *accumulate = winning(overrides, "batch.accumulate");
  const bool asked = bench.batch->count() > 0,
             file = !bench.config.path.empty() || winning(overrides, "deepspeed");
  const std::string batch = std::to_string(bench.options.batch);
  if (asked && global && global->value != batch)
    throw Error(ErrorKind::usage,
                fmt::format("--batch {} and {} are two batches", batch, global->origin), "",
                "leave one of them out");
  // Beside what a file says of micro-batches it would be a contradiction.
  const bool alone = !asked && !micro && accumulate && !file;
  if (!global && (alone || (asked && (!file || micro || accumulate))))
    overrides.push_back({"batch.global", batch,
                         asked ? "--batch " + batch : "--batch " + batch + " (unless given)",
                         true});
  if (!bench.workers.empty())
    overrides.push_back(config::from_set("data.workers=" + bench.workers));
  const std::optional<std::string> path =
      bench.config.path.empty() ? std::nullopt : std::optional(bench.config.path);
  config::Loaded loaded = config::load_all(path, overrides, purpose, world);
  for (const std::string& note : speaks ? loaded.notes : std::vector<std::string>{})
    say(stderr, "note: {}\n", note);
  const bool configured =
      loaded.given.contains("batch.global") || loaded.given.contains("batch.micro");
  if (!asked && configured) bench.options.batch = loaded.config.batch.global;
  return std::move(loaded.config);
}

int run_bench(Bench& bench, char** argv) {
  const run::BenchOptions& o = bench.options;
  if (o.check && o.what != "infer")
    throw Error(ErrorKind::usage,
                "--check compares logits, which `bench " + o.what + "` does not compute", "",
                "bench infer --check");
  if (o.what == "offload")  // of one rank, as the next ones
    return run::bench_offload(load_with_batch(bench, config::Purpose::other, 1, false), o);
  if (o.what == "data" || o.what == "ops" || o.what == "layers") {
    const bool layers = o.what == "layers";
    const config::Config c = load_with_batch(
        bench, layers ? config::Purpose::inference : config::Purpose::other, 1, true);
    return layers             ? run::bench_layers(c, o)
           : o.what == "data" ? run::bench_data(c, o)
                              : run::bench(c, o);
  }
  const int started = run::launched_ranks();
  const config::Purpose purpose =
      o.what == "infer" ? config::Purpose::inference : config::Purpose::other;
  config::Config c = load_with_batch(bench, purpose, started > 1 ? started : 0, run::says_notes());
  if (o.what == "comm") c.parallel.all_reduce = "mpi";  // algorithms are chosen there, side by side
  run::check_schedule(c);
  return run::on_ranks(c, argv, [&](comm::Comm* world) {
    if (o.what != "comm") return run::bench(c, o, world);
    return run::bench_comm(
        o, world ? *world : throw Error(ErrorKind::usage, "bench comm needs ranks", "", "--np 2"));
  });
}

}  // namespace

void add_bench_verb(CLI::App& app, char** argv, bool& json, int& code) {
  auto bench = std::make_shared<Bench>();
  run::BenchOptions& o = bench->options;
  CLI::App* verb = app.add_subcommand("bench", "throughput with achieved against peak");
  verb->add_flag("--json", json, "print one JSON document on stdout");
  verb->add_option("WHAT", o.what, "infer | layers | train | ops | data | comm | offload")
      ->required()
      ->check(CLI::IsMember({"infer", "layers", "train", "ops", "data", "comm", "offload"}));
  bench->config.add_to(*verb);
  bench->batch = verb->add_option(
      "--batch", o.batch, "images per run (default: batch.global where it is given, else 8)");
  bench->batch->check(CLI::Range(1, 65536));
  verb->add_option("--repeats", o.repeats, "timed runs (default: two seconds' worth)")
      ->check(CLI::Range(1, 100000));
  verb->add_flag("--check", o.check,
                 "infer: also how far the logits of these ranks are from those of one");
  verb->add_option("--filter", o.filter, "ops: only equations whose text contains this");
  verb->add_option("--workers", bench->workers, "data: threads that prepare batches")
      ->check(CLI::Range(0, 256));
  verb->add_option("--split", o.split, "data: train (augmented as configured) | test")
      ->check(CLI::IsMember({"train", "test"}));
  verb->add_option("--verb", o.verb, "comm: all_reduce | reduce_scatter | all_gather")
      ->check(CLI::IsMember({"all_reduce", "reduce_scatter", "all_gather"}));
  verb->add_option("--min-bytes", o.min_bytes, "comm: smallest message")
      ->transform(CLI::AsSizeValue(false));
  verb->add_option("--max-bytes", o.max_bytes,
                   "comm: largest message (256MB); offload: bytes of a moment")
      ->transform(CLI::AsSizeValue(false));
  verb->add_option("--machines", o.machines, "comm: pretend that the ranks are on so many")
      ->check(CLI::Range(1, 1024));
  verb->add_flag("--elsewhere", o.elsewhere, "comm: buffers that other ranks cannot reach");
  verb->callback(
      [bench, argv, &json, &code] { bench->options.json = json, code = run_bench(*bench, argv); });
}

}  // namespace tessera::app
