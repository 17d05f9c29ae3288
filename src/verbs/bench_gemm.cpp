// bench gemm: products of the shapes that networks have, by the kernels that run them, against the
// peak of their element type and beside other libraries. Convention: `forward` is x w^T with
// weights that are packed once, as inference has them; `dx` is g w and `dw` is g^T x, as training
// has them. Ours, the others and on cores the loop whose rate is the peak take turns, since the
// speed of a machine that others use too changes; the median run counts, and the median share.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
#include "base/rng.h"
#include "base/say.h"
#include "exec/cpu/peak.h"
#include "exec/cpu/peers/peers.h"
#include "exec/executor.h"
#include "ir/builder.h"
#include "measure/peak.h"
#include "report/document.h"
#include "report/metrics.h"
#include "verbs/verbs.h"

namespace tessera::run {
namespace {

using ir::DType;
using nlohmann::ordered_json;
using std::int64_t;

// x is m x k and w is n x k; m is that of one image.
struct GemmLayer {
  const char *model, *part;
  int64_t m, n, k;
};
// The list has the widest layers of a stage; 1x1 convolutions are products as they are, 3x3 ones of
// their taps.
constexpr GemmLayer gemm_layers[] = {
    {"vit_b_16", "qkv", 197, 2304, 768},         {"vit_b_16", "out", 197, 768, 768},
    {"vit_b_16", "mlp_1", 197, 3072, 768},       {"vit_b_16", "mlp_2", 197, 768, 3072},
    {"swin_t", "stage1.qkv", 3136, 288, 96},     {"swin_t", "stage1.mlp_1", 3136, 384, 96},
    {"swin_t", "stage3.qkv", 196, 1152, 384},    {"swin_t", "stage3.mlp_2", 196, 384, 1536},
    {"swin_t", "stage4.mlp_1", 49, 3072, 768},   {"resnet50", "layer1.conv3", 3136, 256, 64},
    {"resnet50", "layer2.conv3", 784, 512, 128}, {"resnet50", "layer3.conv1", 196, 256, 1024},
    {"resnet50", "layer3.3x3", 196, 256, 2304},  {"resnet50", "layer4.conv3", 49, 2048, 512}};

// A product to measure: the result has `rows` x `columns`, sums have `depth` terms.
struct GemmProduct {
  std::string model = {}, part = {}, name = {};
  int64_t rows = 0, columns = 0, depth = 0;
  const char* sig = "";
  bool a_turned = false, b_turned = false, weights = false;

  double flops() const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(columns) *
           static_cast<double>(depth);
  }
  ir::Shape a() const { return a_turned ? ir::Shape{depth, rows} : ir::Shape{rows, depth}; }
  ir::Shape b() const { return b_turned ? ir::Shape{columns, depth} : ir::Shape{depth, columns}; }
  std::string title() const { return model + " " + part + " " + name; }
};

std::vector<GemmProduct> products_of(int64_t batch, bool trains, const std::string& filter) {
  std::vector<GemmProduct> out;
  for (const GemmLayer& l : gemm_layers) {
    const int64_t m = l.m * batch;
    const auto add = [&](GemmProduct p) {
      p.model = l.model;
      p.part = l.part;
      if (p.title().find(filter) != std::string::npos) out.push_back(std::move(p));
    };
    GemmProduct forward{.name = "forward", .rows = m, .columns = l.n, .depth = l.k};
    forward.weights = true;
    // i8 weights lie as a quantised layer has them.
    forward.sig = trains ? "mk,nk->mn" : "mk,kn,,n->mn";
    forward.b_turned = trains;
    add(forward);
    if (!trains) continue;
    add({.name = "dx", .rows = m, .columns = l.k, .depth = l.n, .sig = "mn,nk->mk"});
    add({.name = "dw",
         .rows = l.n,
         .columns = l.k,
         .depth = m,
         .sig = "mn,mk->nk",
         .a_turned = true});
  }
  return out;
}

// Numbers between -1 and 1, as elements of a type.
std::vector<std::byte> random_elements(DType dtype, int64_t count, std::uint64_t seed) {
  std::vector<std::byte> out(static_cast<std::size_t>(count * ir::size_of(dtype)));
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const std::uint64_t bits = random_bits(Key{seed}, i);
    const float value = static_cast<float>(bits >> 40) * 0x1p-23f - 1;
    if (dtype == DType::f32) {
      std::memcpy(&out[i * 4], &value, 4);
    } else if (dtype == DType::bf16) {
      const auto upper = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
      std::memcpy(&out[i * 2], &upper, 2);
    } else {
      out[i] = static_cast<std::byte>(bits);
    }
  }
  return out;
}

// One product as a plan in an executor.
class OurProduct {
 public:
  OurProduct(const GemmProduct& p, DType dtype, const config::Config& config)
      : executor_(exec::make_executor(config.run.device, static_cast<int>(config.run.threads))),
        plan_(plan::lower(program(p, dtype), 0, target(p))),
        loaded_(executor_->load(plan_)) {
    for (const plan::Binding& input : plan_.inputs) {
      const ir::Type& type = input.slot.type;
      Fed& fed = fed_.emplace_back(Fed{input.name, input.kind == ir::Input::param, {}});
      fed.bytes = random_elements(type.dtype, type.elements(), 1 + fed_.size());
      if (fed.persistent) executor_->write_persistent(fed.name, 0, fed.bytes);
    }
  }

  double run() {
    for (const Fed& fed : fed_)
      if (!fed.persistent) loaded_->write(fed.name, fed.bytes);
    return loaded_->run().timeline.wall_ms;
  }
  const std::vector<std::byte>& operand(std::size_t index) const { return fed_[index].bytes; }

 private:
  struct Fed {
    std::string name;
    bool persistent = false;
    std::vector<std::byte> bytes;
  };
  plan::Target target(const GemmProduct& p) const {
    plan::Target out = executor_->target();
    out.packs = p.weights;
    return out;
  }
  static ir::Program program(const GemmProduct& p, DType dtype) {
    ir::Builder b;
    std::vector<ir::Var> in = {
        b.input(ir::Input::batch, "a", {.dtype = dtype, .shape = p.a(), .at = {}}),
        b.input(p.weights ? ir::Input::param : ir::Input::batch, "b",
                {.dtype = dtype, .shape = p.b(), .at = {}})};
    ir::Contract attrs{.sig = p.sig, .act = {}, .out = {}};
    if (dtype == DType::i8) {
      attrs.out = DType::f32;
      attrs.scales = 2;
      in.push_back(b.input(ir::Input::batch, "s", {.dtype = DType::f32, .shape = {}, .at = {}}));
      in.push_back(
          b.input(ir::Input::batch, "t", {.dtype = DType::f32, .shape = {p.columns}, .at = {}}));
    }
    b.output("c", b.emit1(ir::Op::contract, attrs, in));
    return b.take();
  }

  std::unique_ptr<exec::Executor> executor_;
  plan::Plan plan_;
  std::unique_ptr<exec::Loaded> loaded_;
  std::vector<Fed> fed_;
};

struct GemmRow {
  GemmProduct product;
  std::vector<double> ms;  // ours first, then the peers in their order
  double peak_gflops = 0;  // beside our runs
  double of_peak = 0;
  double gflops(std::size_t who) const { return product.flops() / ms[who] * 1e-6; }
  double ratio(std::size_t peer) const { return ms[peer + 1] / ms[0]; }
};

// Products are measured beside these.
struct Beside {
  std::vector<exec::cpu::PeerGemm> peers;
  std::optional<exec::cpu::PeakRounds> rounds;  // of cores; without, the peak does not change
  Peak peak;

  double peak_now() { return rounds ? rounds->gflops() : peak.gflops; }
};

GemmRow measure_product(const GemmProduct& p, DType dtype, const config::Config& config,
                        Beside& beside, int64_t repeats) {
  OurProduct ours(p, dtype, config);
  std::vector<float> c(static_cast<std::size_t>(p.rows * p.columns));
  const exec::cpu::PeerProduct given{.m = p.rows,
                                     .n = p.columns,
                                     .k = p.depth,
                                     .a = ours.operand(0).data(),
                                     .b = ours.operand(1).data(),
                                     .a_turned = p.a_turned,
                                     .b_turned = p.b_turned,
                                     .c = c.data()};
  std::vector<std::vector<double>> ms(beside.peers.size() + 1);
  std::vector<double> peaks, shares;
  double spent = 0;
  const auto enough = [&] {
    const auto runs = static_cast<int64_t>(shares.size()) - 1;  // the first one warms up
    return repeats > 0 ? runs >= repeats : runs >= 5 && (spent > 200 || runs >= 200);
  };
  while (!enough()) {
    peaks.push_back(beside.peak_now());
    // Each has two runs: the first wakes its threads, which slept while others had their turn.
    spent += ours.run();
    ms[0].push_back(ours.run());
    spent += ms[0].back();
    shares.push_back(p.flops() / ms[0].back() * 1e-6 / peaks.back());
    for (std::size_t i = 0; i < beside.peers.size(); ++i) {
      beside.peers[i].run(given);
      const auto start = std::chrono::steady_clock::now();
      beside.peers[i].run(given);
      ms[i + 1].push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
              .count());
    }
  }
  const auto median = [](std::vector<double>& runs) {
    runs.erase(runs.begin());
    return report::quantiles(runs).median;
  };
  GemmRow row{.product = p, .ms = {}, .peak_gflops = median(peaks), .of_peak = median(shares)};
  for (std::vector<double>& runs : ms) row.ms.push_back(median(runs));
  return row;
}

// All products of a model together: their operations over their time.
struct ModelRate {
  std::string model;
  double flops = 0, ms = 0;
  double peak_ms = 0;  // what it would have been at the peak beside each
  double gflops() const { return flops / ms * 1e-6; }
  double of_peak() const { return peak_ms / ms; }
};
std::vector<ModelRate> rates_of(const std::vector<GemmRow>& rows) {
  std::vector<ModelRate> out;
  for (const GemmRow& row : rows) {
    if (out.empty() || out.back().model != row.product.model)
      out.push_back({.model = row.product.model});
    out.back().flops += row.product.flops();
    out.back().ms += row.ms[0];
    out.back().peak_ms += row.ms[0] * row.of_peak;
  }
  return out;
}

struct GemmTable {
  std::vector<GemmRow> rows;
  const Beside& beside;
  std::string dtype;
};

ordered_json gemm_json(const GemmTable& t, const config::Config& config, int64_t batch) {
  ordered_json rows = ordered_json::array(), models = ordered_json::array(),
               peers = ordered_json::array();
  for (const GemmRow& row : t.rows) {
    const GemmProduct& p = row.product;
    ordered_json others = ordered_json::object();
    for (std::size_t i = 0; i < t.beside.peers.size(); ++i)
      others[t.beside.peers[i].name] = {{"gflops", row.gflops(i + 1)}, {"ratio", row.ratio(i)}};
    rows.push_back({{"model", p.model},
                    {"part", p.part},
                    {"product", p.name},
                    {"m", p.rows},
                    {"n", p.columns},
                    {"k", p.depth},
                    {"ms", row.ms[0]},
                    {"gflops", row.gflops(0)},
                    {"peak_gflops", row.peak_gflops},
                    {"of_peak", row.of_peak},
                    {"peers", others}});
  }
  for (const ModelRate& m : rates_of(t.rows))
    models.push_back({{"model", m.model}, {"gflops", m.gflops()}, {"of_peak", m.of_peak()}});
  for (const exec::cpu::PeerGemm& peer : t.beside.peers)
    peers.push_back({{"name", peer.name}, {"version", peer.version}});
  ordered_json out = {{"dtype", t.dtype},
                      {"batch", batch},
                      {"threads", config.run.threads},
                      {"device", config.run.device},
                      {"peak_gflops", t.beside.peak.gflops},
                      {"peak_dtype", t.beside.peak.dtype},
                      {"peers", peers},
                      {"models", models},
                      {"rows", rows}};
  if (!t.beside.peak.doubt.empty()) out["peak_doubt"] = t.beside.peak.doubt;
  return out;
}

void print_gemm(const GemmTable& t, const config::Config& config, int64_t batch) {
  std::string heading = fmt::format("{:30} {:>18} {:>9} {:>9} {:>6}", "product", "m x n x k", "ms",
                                    "GFLOP/s", "peak");
  for (const exec::cpu::PeerGemm& peer : t.beside.peers)
    heading += fmt::format(" {:>9} {:>6}", peer.name, "ratio");
  say(stdout, "{}\n", heading);
  for (const GemmRow& row : t.rows) {
    const GemmProduct& p = row.product;
    std::string line = fmt::format("{:30} {:>18} {:>9.3f} {:>9.1f} {:>5.0f}%", p.title(),
                                   fmt::format("{} x {} x {}", p.rows, p.columns, p.depth),
                                   row.ms[0], row.gflops(0), row.of_peak * 100);
    for (std::size_t i = 0; i < t.beside.peers.size(); ++i)
      line += fmt::format(" {:>9.1f} {:>6.2f}", row.gflops(i + 1), row.ratio(i));
    say(stdout, "{}\n", line);
  }
  for (const ModelRate& m : rates_of(t.rows))
    say(stdout, "{}, all rows together: {:.1f} GFLOP/s, {:.0f}% of the peak\n", m.model, m.gflops(),
        m.of_peak() * 100);
  const Peak& kept = t.beside.peak;
  say(stdout, "{}, batch {}, {} thread{}\n", t.dtype, batch, config.run.threads,
      config.run.threads == 1 ? "" : "s");
  if (t.beside.rounds) {
    const auto [low, high] = std::minmax_element(
        t.rows.begin(), t.rows.end(),
        [](const GemmRow& a, const GemmRow& b) { return a.peak_gflops < b.peak_gflops; });
    say(stdout, "peak: {:.0f} to {:.0f} GFLOP/s {} in turns with the products\n", low->peak_gflops,
        high->peak_gflops, kept.dtype);
  }
  say(stdout, "{}: {:.0f} GFLOP/s {}, measured {}{}\n",
      t.beside.rounds ? "peak that runs are held against" : "peak", kept.gflops, kept.dtype,
      kept.measured, kept.doubt.empty() ? "" : " (" + kept.doubt + ")");
  for (const exec::cpu::PeerGemm& peer : t.beside.peers)
    say(stdout, "{} {}: GFLOP/s, and our rate over its\n", peer.name, peer.version);
  if (t.beside.peers.empty())
    say(stdout, "no other library for this type is here; `./setup --peers` installs some\n");
}

}  // namespace

int bench_gemm(const config::Config& config, const BenchOptions& options) {
  const std::string dtype = multiplies_in(config);
  if (dtype != "f32" && dtype != "bf16" && dtype != "int8")
    throw Error(ErrorKind::usage,
                "bench gemm multiplies f32, bf16 and int8, and precision.dtype is " + dtype,
                "precision.dtype", "choose --dtype f32 or bf16, or --set precision.quantise=int8");
  const int threads = static_cast<int>(config.run.threads);
  const DType elements = dtype == "int8" ? DType::i8 : ir::parse_dtype(dtype);
  const std::vector<GemmProduct> products =
      products_of(options.batch, dtype != "int8", options.filter);
  if (products.empty())
    throw Error(ErrorKind::usage, "no product has \"" + options.filter + "\" in its name",
                "--filter", "a name is like \"vit_b_16 mlp_1 forward\"; without it all are shown");
  Beside beside;
  if (config.run.device == "cpu") {
    beside.peers = exec::cpu::peer_gemms(dtype, threads);
    beside.rounds.emplace(threads, dtype);
  }
  beside.peak = peak_on(config.run.device, dtype, Ranks(nullptr), threads);
  GemmTable table{.rows = {}, .beside = beside, .dtype = dtype};
  for (const GemmProduct& p : products)
    table.rows.push_back(measure_product(p, elements, config, beside, options.repeats));
  if (options.json)
    report::print_document(gemm_json(table, config, options.batch));
  else
    print_gemm(table, config, options.batch);
  return 0;
}

}  // namespace tessera::run
