// Times the contractions and attentions of the models that matter, for given thread counts, after one warm-up.
// Usage: kernel_time [threads...] (default 1 2)
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/check.h"
#include "harness.h"

namespace tessera::bench {
namespace {

double process_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Rate {
  double median, best;  // by the clock on the wall
  double busy;          // median per second of processor time and thread: what a machine to ourselves would give, idle threads apart
};
Rate time(Runner& runner, exec::cpu::Kernel kernel, exec::cpu::ScratchRule rule, ir::Op op, const ir::Attrs& attrs, std::vector<Array>& in,
          std::vector<Array>& out, double flops) {
  std::vector<double> seconds, busy;
  const int runs = static_cast<int>(std::clamp(2e10 / flops, 7.0, 200.0));
  for (int i = 0; i <= runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const double busy_start = process_seconds();
    runner.run(kernel, rule, op, attrs, in, out);
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i > 0) seconds.push_back(took), busy.push_back((process_seconds() - busy_start) / runner.pool.size());
  }
  std::sort(seconds.begin(), seconds.end());
  std::sort(busy.begin(), busy.end());
  return {flops / seconds[seconds.size() / 2] / 1e9, flops / seconds[0] / 1e9, flops / busy[busy.size() / 2] / 1e9};
}

void row(std::vector<std::unique_ptr<Runner>>& runners, const char* name, exec::cpu::Kernel kernel, exec::cpu::ScratchRule rule, ir::Op op,
         const ir::Attrs& attrs, std::vector<Array>& in, std::vector<Array>& out, double flops, const std::string& note) {
  std::printf("%-34s", name);
  for (auto& runner : runners) {
    const Rate rate = time(*runner, kernel, rule, op, attrs, in, out, flops);
    std::printf("  %7.1f %7.1f %7.1f", rate.median, rate.best, rate.busy);
  }
  std::printf("   %s\n", note.c_str());
  std::fflush(stdout);
}

void contract(std::vector<std::unique_ptr<Runner>>& runners, const char* name, const std::string& sig,
              const std::map<char, std::int64_t>& extents, const std::string& act = "") {
  std::vector<Array> in, out;
  ir::Shape shape;
  std::vector<ir::Shape> shapes;
  double flops = 2;
  for (auto [c, e] : extents) flops *= static_cast<double>(e);
  for (char c : sig) {
    if (c == '>') continue;
    if (c == ',' || c == '-')
      shapes.push_back(shape), in.push_back(random_array(shape, in.size())), shape.clear();
    else
      shape.push_back(extents.at(c));
  }
  out.push_back(poisoned(shape));
  if (!act.empty()) out.push_back(poisoned(shape));
  const exec::cpu::Lowering l = exec::cpu::lower_contract(sig, shapes);
  const std::string note = "tile " + std::to_string(l.m_tile) + "x" + std::to_string(l.n_tile) + "x" + std::to_string(l.k.extent) + ", " +
                           std::to_string(l.tiles()) + " tiles, " + std::to_string(l.k_chunks) + " chunks";
  row(runners, (std::string(name) + " " + sig).c_str(), exec::cpu::fast_contract, exec::cpu::scratch_contract, ir::Op::contract,
      ir::Contract{sig, act, {}}, in, out, flops, note);
}

void attention(std::vector<std::unique_ptr<Runner>>& runners, const char* name, std::int64_t b, std::int64_t t, std::int64_t h,
               std::int64_t d, bool bias) {
  std::vector<Array> in{random_array({b, t, h, d}, 1), random_array({b, t, h, d}, 2), random_array({b, t, h, d}, 3)};
  if (bias) in.push_back(random_array({h, t, t}, 4));
  std::vector<Array> out{poisoned({b, t, h, d}), poisoned({b, h, t})};
  const ir::Attrs attrs = ir::Attention{0.125, bias, false};
  const double flops = 4.0 * static_cast<double>(b * h * t * t * d);
  row(runners, (std::string(name) + " forward").c_str(), exec::cpu::fast_attention, exec::cpu::scratch_attention, ir::Op::attention, attrs,
      in, out, flops, "");
  std::vector<Array> back{in[0], in[1], in[2], out[0], out[1], random_array({b, t, h, d}, 5)};
  if (bias) back.push_back(in[3]);
  std::vector<Array> grads{out[0], out[0], out[0]};
  if (bias) grads.push_back(poisoned({h, t, t}));
  row(runners, (std::string(name) + " backward").c_str(), exec::cpu::fast_attention_grad, exec::cpu::scratch_attention_grad,
      ir::Op::attention_grad, attrs, back, grads, 2.5 * flops, "");
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  using namespace tessera::bench;
  std::vector<std::unique_ptr<Runner>> runners;
  for (int i = 1; i < argc; ++i) runners.push_back(std::make_unique<Runner>(std::atoi(argv[i])));
  if (argc < 2)
    for (int threads : {1, 2}) runners.push_back(std::make_unique<Runner>(threads));
  std::printf("GFLOP/s (median, best, median by processor time), for threads:");
  for (auto& runner : runners) std::printf(" %d", runner->pool.size());
  std::printf("\n");

  using Extents = std::map<char, std::int64_t>;
  const auto model = [&](const std::string& name, std::int64_t b, std::int64_t t, std::int64_t c, std::int64_t h) {
    const Extents qkv{{'b', b}, {'t', t}, {'c', c}, {'n', 3}, {'h', h}, {'d', c / h}},
        proj{{'b', b}, {'t', t}, {'c', c}, {'h', h}, {'d', c / h}};
    const Extents mlp{{'b', b}, {'t', t}, {'c', c}, {'f', 4 * c}};
    std::printf("-- %s, %ld x %ld tokens\n", name.c_str(), static_cast<long>(b), static_cast<long>(t));
    contract(runners, "qkv", "btc,nhdc,nhd->nbthd", qkv);
    contract(runners, "qkv dx", "nbthd,nhdc->btc", qkv);
    contract(runners, "qkv dw", "nbthd,btc->nhdc", qkv);
    contract(runners, "proj", "bthd,chd,c,btc->btc", proj);
    contract(runners, "proj dx", "btc,chd->bthd", proj);
    contract(runners, "proj dw", "btc,bthd->chd", proj);
    contract(runners, "fc1", "btc,fc,f->btf", mlp, "gelu");
    contract(runners, "fc1 no act", "btc,fc,f->btf", mlp);
    contract(runners, "fc1 dx", "btf,fc->btc", mlp);
    contract(runners, "fc1 dw", "btf,btc->fc", mlp);
    contract(runners, "fc2", "btf,cf,c,btc->btc", mlp);
    contract(runners, "fc2 dx", "btc,cf->btf", mlp);
    contract(runners, "fc2 dw", "btc,btf->cf", mlp);
    attention(runners, "attention", b, t, h, c / h, false);
  };
  model("vit_tiny", 64, 65, 192, 3);
  model("vit_b", 8, 197, 768, 12);
  std::printf("-- others\n");
  contract(runners, "vit_b batch 1 fc1", "btc,fc,f->btf", {{'b', 1}, {'t', 197}, {'c', 768}, {'f', 3072}});
  contract(runners, "vit_b batch 1 proj", "bthd,chd,c,btc->btc", {{'b', 1}, {'t', 197}, {'c', 768}, {'h', 12}, {'d', 64}});
  contract(runners, "patches", "btpqc,pqcd,d->btd", {{'b', 8}, {'t', 196}, {'p', 16}, {'q', 16}, {'c', 3}, {'d', 768}});
  contract(runners, "head", "bc,kc,k->bk", {{'b', 64}, {'c', 768}, {'k', 1000}});
  attention(runners, "window attention + bias", 512, 49, 3, 32, true);
  attention(runners, "long attention", 1, 577, 12, 64, false);
}
