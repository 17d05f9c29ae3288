// docs/parallelism.md says what the code does: its programs and tables are generated; what stands
// around them is written. Convention: `<!-- begin NAME -->` and `<!-- end NAME -->` enclose what is
// generated; TESSERA_UPDATE_GOLDENS=1 writes it anew.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "compile/pipeline.h"
#include "parallel/state.h"
#include "parallel/world.h"
#include "plan/traffic.h"
#include "report/console.h"

namespace tessera::test::docs_test {
namespace {

const std::string path = std::string(TESSERA_SOURCE_DIR) + "/docs/parallelism.md";

// One block: 16 images of 8 x 8, 5 tokens of 16 channels, 2 heads, an MLP of 32.
config::Config example(const std::string& layout) {
  config::Config c = tiny("vit", "f32");
  c.model.image_h = c.model.image_w = 8;
  c.model.dim = 16;
  c.model.depth = 1;
  c.model.heads = 2;
  c.model.mlp = 32;
  c.model.classes = 10;
  c.batch = {16, 16, 1};
  c.optim.clip = 0;
  c.parallel.persist = 0;
  if (layout.starts_with("pp")) c.model.depth = 2;
  return with_layout(c, layout);
}

struct Programs {
  ir::Program before, after;  // placement
};
Programs programs_of(const config::Config& c) {
  Programs out;
  transforms::RunOptions options;
  options.before = [&](const transforms::Pass& pass, const ir::Program& p) {
    if (pass.name == "place") out.before = p;
    if (pass.name == "combine") out.after = p;
  };
  run::compile(c, run::Goal::train, run::micro_batches(c.batch.global, c.batch.accumulate),
               plan::Target{}, options);
  return out;
}

// The inputs and equations whose first result is one of these, or a copy of one that a collective
// made ("x/dp").
std::string excerpt(const ir::Program& p, const std::set<std::string>& names) {
  const auto wanted = [&](ir::Var v) {
    std::string name = p.name_of(v);
    name = name.substr(0, name.find_first_of("/~"));
    return names.contains(name);
  };
  std::istringstream lines(ir::print(p));
  std::string out, line;
  std::getline(lines, line);
  for (const ir::Input& in : p.inputs) {
    std::getline(lines, line);
    if (wanted(in.var)) out += line + "\n";
  }
  for (const ir::Eqn& e : p.eqns) {
    std::getline(lines, line);
    ir::Var first = ir::none;
    for (ir::Var v : e.out)
      if (first == ir::none) first = v;
    if (first != ir::none && wanted(first)) out += line + "\n";
  }
  // Layer 0 is the only one, and long lists of operands end in dots.
  const std::string prefix = "encoder.layers.encoder_layer_0.";
  for (std::size_t i; (i = out.find(prefix)) != out.npos;) out.erase(i, prefix.size());
  std::istringstream all(std::exchange(out, ""));
  while (std::getline(all, line))
    out += (line.size() > 170 ? line.substr(0, 167) + "..." : line) + "\n";
  return out;
}

std::string sent(const config::Config& c) {
  const plan::Plan plan =
      run::compile(c, run::Goal::train, run::micro_batches(c.batch.global, c.batch.accumulate),
                   plan::Target{})
          .plan;
  std::string out = "| phase | op | axis | what | count | bytes |\n|---|---|---|---|---|---|\n";
  for (const plan::CommRow& row : plan::communication(plan))
    out +=
        fmt::format("| {} | `{}` | {} | {} | {} | {} |\n", plan::name(row.phase), ir::name(row.op),
                    row.axis, row.what, row.count, report::with_commas(row.bytes));
  return out;
}

// Before, after, and what rank 0 sends.
std::string technique(const std::string& layout, std::set<std::string> names) {
  const std::string l = "encoder.layers.encoder_layer_0.";
  std::set<std::string> full;
  for (const std::string& name : names) {
    full.insert(name);
    full.insert(name.starts_with("d.") ? "d." + l + name.substr(2) : l + name);
  }
  const config::Config c = example(layout);
  const Programs p = programs_of(c);
  return "```\n" + excerpt(p.before, full) + "```\n\n```\n" + excerpt(p.after, full) + "```\n\n" +
         sent(c);
}

std::string state_table() {
  std::string out =
      "| stage | ranks | formula, bytes a parameter | formula | planned | allocated | planned / "
      "formula | in flight |\n"
      "|---|---|---|---|---|---|---|---|\n";
  const std::int64_t parameters = state_parameters();
  for (const int stage : {0, 1, 2, 3})
    for (const int ranks : {1, 2, 4, 8}) {
      const StateBytes got = state_bytes(stage, ranks, 0);
      const double want = state_formula(stage, ranks);
      out += fmt::format(
          "| {} | {} | {} | {} | {} | {} | {:.3f} | {} |\n", stage, ranks, want,
          report::with_commas(static_cast<std::int64_t>(want * static_cast<double>(parameters))),
          report::with_commas(got.planned()), report::with_commas(got.allocated),
          static_cast<double>(got.planned()) / (want * static_cast<double>(parameters)),
          report::with_commas(got.in_flight));
    }
  return out;
}

// Gradients of vit_tiny_cifar on four ranks. A ring sends 2 (n-1)/n of an all_reduce's payload,
// (n-1)/n of that of a reduce_scatter or all_to_all, and n-1 times that of an all_gather.
std::string kinds_table() {
  constexpr int ranks = 4;
  using Bytes = std::array<double, 2>;  // payload, and what a ring sends
  const auto sent = [&](const std::string& kind, int zero) -> Bytes {
    config::Config c;
    c.batch = {8, 8, 1};
    c.run.threads = 1;
    c.parallel.dp = ranks;
    c.parallel.zero = zero;
    c.parallel.compress = kind;
    const plan::Plan plan = run::compile(c, run::Goal::train, {8}, plan::Target{}).plan;
    double payload = 0, ring = 0;
    for (const plan::CommRow& row : plan::communication(plan)) {
      if (row.what != "gradients") continue;
      const auto bytes = static_cast<double>(row.bytes);
      payload += bytes;
      ring += row.op == ir::Op::all_gather   ? (ranks - 1) * bytes
              : row.op == ir::Op::all_reduce ? 2 * bytes * (ranks - 1) / ranks
                                             : bytes * (ranks - 1) / ranks;
    }
    return {payload, ring};
  };
  std::string out =
      "| compress | payload of a rank | sent by a ring | of uncompressed | ZeRO 1: payload | of "
      "uncompressed "
      "|\n|---|---|---|---|---|---|\n";
  const auto [plain, plain_ring] = sent("none", 0);
  const auto [cut, cut_ring] = sent("none", 1);
  for (const char* kind : {"none", "fp16", "bf16", "int8", "topk=0.01", "onebit", "powersgd=4"}) {
    const auto [payload, ring] = sent(kind, 0);
    const auto [payload1, ring1] = sent(kind, 1);
    const auto whole = [](double bytes) {
      return report::with_commas(static_cast<std::int64_t>(bytes));
    };
    out += fmt::format("| `{}` | {} | {} | {:.3f} | {} | {:.3f} |\n", kind, whole(payload),
                       whole(ring), ring / plain_ring, whole(payload1), ring1 / cut_ring);
  }
  return out;
}

std::string read() {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

const std::set<std::string> mlp = {"mlp.0.weight",      "mlp.3.weight",      "blocks.0.mlp.fc1_",
                                   "blocks.0.mlp.gelu", "blocks.0.mlp.fc2_", "blocks.0.mlp.fc2"};

TEST(ParallelismDocs, AreGenerated) {
  const std::vector<std::pair<std::string, std::string>> parts = {
      {"dp",
       technique("dp2", {"images", "blocks.0.mlp.fc2_", "d.mlp.3.weight", "optimizer.grad.decay",
                         "optimizer.pinned.decay", "optimizer.decay.w"})},
      {"zero1",
       technique("dp2 zero1", {"weights.decay", "m.decay", "optimizer.grad.decay",
                               "optimizer.pinned.decay", "optimizer.sumsq.decay",
                               "optimizer.decay.w", "optimizer.decay.kept.weights.decay"})},
      {"zero2", technique("dp2 zero2", {"optimizer.grad.decay.block1",
                                        "optimizer.pinned.decay.block1", "optimizer.decay.block1.w",
                                        "optimizer.decay.block1.kept.weights.decay.block1"})},
      {"zero3", technique("dp2 zero3", {"weights.decay.block1", "mlp.0.weight", "blocks.0.mlp.fc1_",
                                        "d.blocks.0.ln_2.y", "optimizer.grad.decay.block1",
                                        "optimizer.decay.block1.w",
                                        "optimizer.decay.block1.kept.weights.decay.block1"})},
      {"tp", technique("tp2", mlp)},
      {"megatron", technique("tp2 megatron",
                             {"blocks.0.residual_1.x", "blocks.0.ln_2.y", "mlp.0.weight",
                              "mlp.3.weight", "blocks.0.mlp.fc1_", "blocks.0.mlp.gelu",
                              "blocks.0.mlp.fc2_", "blocks.0.mlp.fc2", "blocks.0.residual_2.x"})},
      {"ulysses", technique("sp2", {"blocks.0.ln_1.y", "blocks.0.msa.qkv", "blocks.0.msa.tokens",
                                    "blocks.0.msa.heads", "blocks.0.msa.q", "blocks.0.msa.o",
                                    "blocks.0.msa.proj_"})},
      {"pp", technique("pp2 acc2", {"images.0", "labels.0", "weights.decay.stage1",
                                    "blocks.0.residual_2.residual.0", "blocks.1.ln_1.y.0",
                                    "d.blocks.0.residual_2.residual.0", "optimizer.sumsq",
                                    "optimizer.grad_norm"})},
      {"compress",
       technique("dp2 compress=int8", {"optimizer.grad.decay", "residual.decay",
                                       "optimizer.pinned.decay", "optimizer.kept.residual.decay"})},
      {"kinds", kinds_table()},
      {"state", state_table()},
  };
  const std::string text = read();
  std::string now = text;
  for (const auto& [name, body] : parts) {
    const std::string begin = "<!-- begin " + name + " -->\n", end = "<!-- end " + name + " -->";
    const auto from = now.find(begin), to = now.find(end);
    ASSERT_TRUE(from != now.npos && to != now.npos && from < to)
        << "docs/parallelism.md needs a line " << begin << " and a line " << end;
    now = now.substr(0, from + begin.size()) + body + now.substr(to);
  }
  if (now == text) return;
  if (const char* update = std::getenv("TESSERA_UPDATE_GOLDENS");
      update && std::string(update) == "1") {
    std::ofstream(path) << now;
    GTEST_SKIP() << "rewrote the generated parts of docs/parallelism.md";
  }
  std::istringstream page(text), code(now);
  std::string said, meant;
  while (said == meant && std::getline(code, meant))
    if (!std::getline(page, said)) said.clear();
  FAIL() << "docs/parallelism.md is stale; TESSERA_UPDATE_GOLDENS=1 build/tests/parallel_test "
            "rewrites it. The first line that differs:\n"
         << "  docs  " << said << "\n  code  " << meant;
}

}  // namespace
}  // namespace tessera::test::docs_test
