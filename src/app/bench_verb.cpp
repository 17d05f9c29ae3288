// tessera bench: its flags, and whose batch is measured.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/arguments.h"
#include "app/verbs.h"
#include "base/check.h"
#include "base/say.h"
#include "compile/pipeline.h"
#include "config/reader.h"
#include "ranks/launch.h"
#include "report/console.h"
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
    overrides.push_back(
        {.key = "batch.global",
         .value = batch,
         .origin = asked ? "--batch " + batch : "--batch " + batch + " (unless given)",
         .is_flag = true});
  if (!bench.workers.empty())
    overrides.push_back(config::from_set("data.workers=" + bench.workers));
  const std::optional<std::string> path =
      bench.config.path.empty() ? std::nullopt : std::optional(bench.config.path);
  config::Loaded loaded = config::load_all(path, overrides, purpose, world);
  for (const std::string& note : speaks ? loaded.notes : std::vector<std::string>{})
    report::say_note(note);
  const bool configured =
      loaded.given.contains("batch.global") || loaded.given.contains("batch.micro");
  if (!asked && configured) bench.options.batch = loaded.config.batch.global;
  return std::move(loaded.config);
}

int run_bench(Bench& bench, char** argv) {
  const run::BenchOptions& o = bench.options;
  if (o.what == "offload")  // of one rank, as the next ones
    return run::bench_offload(load_with_batch(bench, config::Purpose::other, 1, false), o);
  if (o.what == "data" || o.what == "ops" || o.what == "layers" || o.what == "gemm") {
    const bool infers = o.what == "layers" || o.what == "gemm";
    const config::Config c = load_with_batch(
        bench, infers ? config::Purpose::inference : config::Purpose::other, 1, true);
    return o.what == "layers" ? run::bench_layers(c, o)
           : o.what == "gemm" ? run::bench_gemm(c, o)
           : o.what == "data" ? run::bench_data(c, o)
                              : run::bench(c, o);
  }
  const int started = run::launched_ranks();
  const config::Purpose purpose =
      o.what == "infer" ? config::Purpose::inference : config::Purpose::other;
  config::Config c = load_with_batch(bench, purpose, started > 1 ? started : 0, run::says_notes());
  if (o.what == "comm" && c.run.device != "cpu")
    throw Error(ErrorKind::usage,
                "bench comm measures messages between memory of the host, and run.device = " +
                    c.run.device + " changes nothing about them",
                "run.device",
                "leave --device out; `bench train --np N --device " + c.run.device +
                    "` shows what messages of a step take there");
  if (o.what == "comm") c.parallel.all_reduce = "mpi";  // algorithms are chosen there, side by side
  if (!o.weights.empty()) run::take_model(c, o.weights);
  run::check_schedule(c);
  return run::on_ranks(c, argv, [&](comm::Comm* world) {
    if (o.what != "comm") return run::bench(c, o, world);
    return run::bench_comm(
        o, world ? *world : throw Error(ErrorKind::usage, "bench comm needs ranks", "", "--np 2"));
  });
}

}  // namespace

namespace {

// Flags of a configuration that mean something where nothing is trained to its end.
const std::vector<std::string_view> bench_flags = {
    "--model",      "--data",     "--global-batch", "--micro-batch",
    "--accumulate", "--dtype",    "--device",       "--threads",
    "--dp",         "--tp",       "--pp",           "--sp",
    "--zero",       "--schedule", "--np",           "--oversubscribe",
    "--comm",       "--seed",     "--deepspeed"};

struct Modes {
  CLI::App& verb;
  char** argv;
  bool& json;
  int& code;

  // A mode with what all of them take; it measures a batch where `batched`.
  std::pair<CLI::App*, std::shared_ptr<Bench>> add(const char* name, const char* help,
                                                   bool batched = true) const {
    const auto bench = std::make_shared<Bench>();
    bench->options.what = name;
    CLI::App* mode = verb.add_subcommand(name, help);
    mode->add_flag("--json", json, "print one JSON document on stdout");
    bench->config.add_to(*mode, bench_flags);
    bench->batch =
        mode->add_option("--batch", bench->options.batch,
                         "images per run (default: batch.global where it is given, else 8)");
    bench->batch->check(CLI::Range(1, 65536));
    if (!batched) bench->batch->group("");  // hidden: it changes nothing
    mode->add_option("--repeats", bench->options.repeats,
                     "timed runs (default: two seconds' worth)")
        ->check(CLI::Range(1, 100000));
    mode->callback([bench, argv = argv, &json = json, &code = code] {
      bench->options.json = json;
      code = run_bench(*bench, argv);
    });
    return {mode, bench};
  }
};

void add_comm_mode(const Modes& modes) {
  const auto [mode, bench] = modes.add(
      "comm", "latency and bandwidth of a collective by every algorithm, beside plain MPI", false);
  run::BenchOptions& o = bench->options;
  mode->add_option("--verb", o.verb, "all_reduce | reduce_scatter | all_gather")
      ->check(CLI::IsMember({"all_reduce", "reduce_scatter", "all_gather"}))
      ->capture_default_str();
  mode->add_option("--min-bytes", o.min_bytes, "smallest message")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  mode->add_option("--max-bytes", o.max_bytes, "largest message, for example 64MB")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  mode->add_option("--machines", o.machines, "pretend that the ranks are on so many")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  mode->add_flag("--elsewhere", o.elsewhere, "buffers that other ranks cannot reach");
}

}  // namespace

void add_bench_verb(CLI::App& app, char** argv, bool& json, int& code) {
  CLI::App* verb = app.add_subcommand("bench", "throughput with achieved against peak");
  verb->require_subcommand(1);
  const Modes modes{.verb = *verb, .argv = argv, .json = json, .code = code};
  {
    const auto [mode, bench] = modes.add("infer", "a forward pass, on any layout");
    mode->add_option("--weights", bench->options.weights,
                     "weights that name their model, such as those of `tessera quantize`, instead "
                     "of --model")
        ->type_name("W");
    mode->add_flag("--check", bench->options.check,
                   "also how far the logits of these ranks are from those of one");
  }
  {
    const auto [mode, bench] =
        modes.add("layers", "where the time of a forward pass goes, by the parts of a layer");
    mode->add_flag("--compare-threading", bench->options.compare_threading,
                   "by every way in which threads may share work out (run.threading), in turns");
  }
  modes.add("train", "a training step, on any layout");
  {
    const auto [mode, bench] = modes.add("ops", "every op of a training step by itself");
    mode->add_option("--filter", bench->options.filter, "only equations whose text contains this");
  }
  {
    const auto [mode, bench] =
        modes.add("gemm", "products of the shapes of ViT, Swin and ResNet, beside other libraries");
    mode->add_option("--filter", bench->options.filter,
                     "only rows whose name contains this, such as \"vit_b_16\" or \"dw\"");
  }
  {
    const auto [mode, bench] = modes.add("data", "the loader beside the decoder alone");
    mode->add_option("--workers", bench->workers, "threads that prepare batches")
        ->check(CLI::Range(0, 256));
    mode->add_option("--split", bench->options.split, "train (augmented as configured) | test")
        ->check(CLI::IsMember({"train", "test"}))
        ->capture_default_str();
  }
  add_comm_mode(modes);
  {
    const auto [mode, bench] =
        modes.add("offload", "how fast what rests away from the device comes and goes", false);
    mode->add_option("--max-bytes", bench->options.max_bytes, "bytes of a moment")
        ->transform(CLI::AsSizeValue(false))
        ->capture_default_str();
  }
}

}  // namespace tessera::app
