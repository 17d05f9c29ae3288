#include "report/sample.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <sstream>

namespace tessera::report::test {

RunRecord sample_run(int ranks, std::int64_t batch, double step_ms, double exposed, double wait,
                     double top1) {
  RunRecord r;
  r.folder = "runs/a";
  r.model = "vit_micro";
  r.data = "synthetic";
  r.dtype = "f32";
  r.layout = ranks == 1 ? "one rank" : fmt::format("dp{}", ranks);
  r.ranks = ranks;
  r.threads = 1;
  r.global_batch = batch;
  r.steps = 80;
  r.step_ms = {step_ms, step_ms * 0.97, step_ms * 1.08, step_ms * 0.95, step_ms * 1.2};
  r.images_per_s = static_cast<double>(batch) / step_ms * 1e3;
  r.mfu = 0.31;
  r.epoch_seconds = step_ms * 0.02;
  r.wall = step_ms * 0.1;
  r.breakdown.compute = step_ms * (0.97 - exposed - wait);
  r.breakdown.comm_exposed = step_ms * exposed;
  r.breakdown.wait = step_ms * wait;
  r.breakdown.data = step_ms * 0.02;
  r.breakdown.host = step_ms * 0.01;
  r.breakdown.comm_hidden = ranks > 1 ? step_ms * 0.1 : 0;
  r.comm_bytes = ranks > 1 ? 592204 : 0;
  r.planned = 10153024;
  r.measured = 10160000;
  r.loss = 1.2;
  r.test_loss = 1.3;
  r.test_top1 = top1;
  r.best_top1 = top1 + 0.01;
  for (int e = 1; e <= 5; ++e) {
    EpochRecord epoch;
    epoch.seconds = r.epoch_seconds;
    epoch.elapsed = r.epoch_seconds * 1.2 * e;
    epoch.loss = 2.3 - 0.2 * e;
    epoch.train_top1 = 0.1 * e;
    epoch.test_loss = 2.3 - 0.19 * e;
    epoch.test_top1 = top1 - 0.05 * (5 - e);
    epoch.barrier_wait = 1e-4;
    r.epochs.push_back(epoch);
  }
  for (int s = 1; s <= 80; s += 4) r.losses.emplace_back(s, 2.3 * std::exp(-s / 100.0));
  for (int k = 0; k < ranks; ++k) {
    RankRecord rank;
    rank.host = k < 4 ? "node1" : "node2";
    rank.device = "cpu";
    rank.breakdown = r.breakdown;
    rank.planned = r.planned;
    rank.measured = r.measured;
    rank.breakdown.compute *= k == 0 ? 1.05 : 1 - 0.05 / std::max(1, ranks - 1);
    r.by_rank.push_back(rank);
  }
  r.hosts = ranks > 4 ? 2 : 1;
  r.env = {{"tessera", "0.1.0"},
           {"commit", "a2a08141354b"},
           {"compiler", "GNU 12.2.0"},
           {"cpu", "Neoverse V1"},
           {"cores", 16},
           {"host", "node1"},
           {"threads", 1},
           {"peak_gflops", {{"f32", 83.2}, {"how", "measured"}}}};
  r.warmup = 2;
  r.settings = {
      {"batch.global", std::to_string(batch)}, {"optim.lr", "0.001"}, {"optim.name", "adamw"}};
  return r;
}

Repeat done(int number, RunRecord run) {
  Repeat r;
  r.number = number;
  r.outcome = Outcome::done;
  r.attempts = 1;
  r.wall = run.wall;
  run.params = 5'400'000;
  run.date = "2026-11-17T04:05:06Z";
  r.command =
      fmt::format("tessera train --model {} --np {} --seed {}", run.model, run.ranks, number);
  r.folder = fmt::format("runs/{}-{}", run.ranks, number);
  run.seed = number;
  r.record = std::move(run);
  return r;
}

Repeat failed(int number, const std::string& reason) {
  Repeat r;
  r.number = number;
  r.outcome = Outcome::failed;
  r.attempts = 2;
  r.reason = reason;
  r.command = "tessera train --np 8";
  return r;
}

namespace {
// From -1 to 1, the same in every run of a test.
double wobble(int repeat, int salt) { return std::sin(12.9898 * (repeat + 1) + 78.233 * salt); }
}  // namespace

Part scaling_part(PartKind kind, const std::vector<int>& ranks,
                  const std::function<double(int)>& efficiency, int repeats, double noise,
                  double exposed, const std::vector<std::int64_t>& batches) {
  Part part;
  part.kind = kind;
  part.name = std::string(name(kind));
  part.axis = "run.np";
  part.title = kind == PartKind::weak ? "Weak scaling" : "Strong scaling";
  part.what =
      kind == PartKind::weak ? "The same work for every rank." : "The same work on more ranks.";
  for (const std::int64_t batch : batches)
    for (const int n : ranks) {
      Point p;
      p.axes = {{"batch.global", std::to_string(batch)}, {"run.np", std::to_string(n)}};
      for (int r = 0; r < repeats; ++r) {
        const double step = 50.0 * static_cast<double>(batch) / 64 /
                            (kind == PartKind::weak ? efficiency(n) : n * efficiency(n)) *
                            (1 + noise * wobble(r, n));
        p.repeats.push_back(done(r, sample_run(n, batch, step, n > 1 ? exposed * std::log2(n) : 0,
                                               n > 1 ? 0.03 : 0, 0.5 + 0.01 * wobble(r, n + 1))));
      }
      part.points.push_back(p);
    }
  return part;
}

Part technique_part(int repeats, double noise) {
  Part part;
  part.name = "techniques";
  part.title = "Techniques on two ranks";
  part.kind = PartKind::techniques;
  const std::vector<std::tuple<const char*, const char*, int, double, double, double>> rows = {
      {"one rank", "one rank", 1, 50, 10.2e6, 0},
      {"data parallel", "dp2", 2, 27, 10.2e6, 592204},
      {"tensor parallel", "tp2", 2, 31, 6.1e6, 2400000},
      {"ZeRO 3", "dp2 zero3", 2, 29, 5.2e6, 880000},
      {"pipeline, 1F1B", "pp2 1f1b 2+2", 2, 33, 5.9e6, 65536}};
  for (const auto& [technique, layout, ranks, step, memory, bytes] : rows) {
    Point p;
    p.technique = technique;
    for (int r = 0; r < repeats; ++r) {
      RunRecord run =
          sample_run(ranks, 64, step * (1 + noise * wobble(r, static_cast<int>(step))),
                     ranks > 1 ? 0.06 : 0, ranks > 1 ? 0.02 : 0, 0.52 + 0.004 * wobble(r, 7));
      run.layout = layout;
      run.measured = run.planned = static_cast<std::int64_t>(memory);
      run.comm_bytes = bytes;
      run.loss = 1.2 + 0.01 * wobble(r, 3) + (ranks > 1 ? 2e-7 * step : 0);
      if (std::string(layout).starts_with("pp")) {
        run.bubble = 0.12;
        run.breakdown.pipelined = true;
        run.breakdown.bubble = 0.12;
      }
      p.repeats.push_back(done(r, run));
    }
    part.points.push_back(p);
  }
  return part;
}

Part technique_grid(const std::vector<int>& images, int repeats) {
  Part part = technique_part(repeats, 0);
  std::vector<Point> points;
  for (const Point& p : part.points)
    for (const int image : images) {
      points.push_back(p);
      points.back().axes = {{"model.image", std::to_string(image)}};
      for (Repeat& r : points.back().repeats) {
        r.record->epoch_seconds *= image;
        r.record->epoch_seconds /= images.front();
        r.record->comm_bytes *= image;
        r.record->comm_bytes /= images.front();
        r.record->measured = r.record->planned = r.record->measured * image / images.front();
      }
    }
  part.points = std::move(points);
  return part;
}

Part batch_part(int repeats) {
  Part part;
  part.name = "batch";
  part.title = "Batch size";
  part.kind = PartKind::batch;
  part.axis = "batch.global";
  for (const int n : {1, 2})
    for (const std::int64_t batch : {16, 32, 64, 128, 256}) {
      Point p;
      p.axes = {{"run.np", std::to_string(n)}, {"batch.global", std::to_string(batch)}};
      for (int r = 0; r < repeats; ++r) {
        const double step = (4 + 0.7 * static_cast<double>(batch)) / n *
                            (1 + 0.01 * wobble(r, static_cast<int>(batch)));
        p.repeats.push_back(
            done(r, sample_run(n, batch, step, n > 1 ? 4.0 / static_cast<double>(batch) : 0,
                               n > 1 ? 0.02 : 0,
                               0.55 - 0.01 * std::abs(std::log2(static_cast<double>(batch)) - 6) +
                                   0.004 * wobble(r, 5))));
      }
      part.points.push_back(p);
    }
  return part;
}

Part accuracy_part(int repeats, double spread) {
  Part part;
  part.name = "accuracy";
  part.title = "Accuracy by optimizer";
  part.kind = PartKind::accuracy;
  part.axis = "optim.name";
  double base = 0.61;
  for (const char* optimizer : {"adamw", "sgd", "lamb"}) {
    Point p;
    p.axes = {{"optim.name", optimizer}};
    for (int r = 0; r < repeats; ++r)
      p.repeats.push_back(
          done(r, sample_run(2, 64, 27, 0.05, 0.02, base + spread * wobble(r, 11))));
    base -= 0.02;
    part.points.push_back(p);
  }
  return part;
}

Part layers_part() {
  Part part;
  part.name = "layers";
  part.title = "Parts of a ViT layer";
  part.kind = PartKind::layers;
  part.verb = "layers";
  part.published = {
      {"embeddings", 0.2}, {"ln_1", 0.01}, {"msa", 0.31}, {"ln_2", 0.01}, {"mlp", 0.6}};
  part.published_by = "a publication";
  for (const int threads : {1, 2}) {
    Point p;
    p.axes = {{"run.threads", std::to_string(threads)}};
    RunRecord r = sample_run(1, 1, 5);
    r.verb = "layers";
    r.epochs.clear();
    r.losses.clear();
    r.threads = threads;
    r.parts = {{"ln_1", 0.0002 / threads, 0.02, 12},
               {"msa.qkv", 0.003 / threads, 0.27, 12},
               {"msa.projection", 0.001 / threads, 0.09, 12},
               {"ln_2", 0.0002 / threads, 0.02, 12},
               {"mlp", 0.007 / threads, 0.6, 12},
               {"head", 0.001 / threads, 0.01, 1}};
    p.repeats.push_back(done(0, r));
    part.points.push_back(p);
  }
  return part;
}

Study sample_study(int repeats) {
  Study s;
  s.name = "sample";
  s.title = "Two nodes, five techniques";
  s.what = "What more ranks bring on this machine.";
  s.file = "studies/sample.toml";
  s.command = "tessera study studies/sample.toml";
  s.warmup = 2;
  s.elapsed = 412;
  const auto amdahl = [](int n) { return 1 / (0.03 * n + 0.97); };
  s.parts.push_back(
      scaling_part(PartKind::strong, {1, 2, 4, 8}, amdahl, repeats, 0.02, 0.03, {16, 64}));
  s.parts.push_back(scaling_part(
      PartKind::weak, {1, 2, 4, 8}, [](int n) { return 1 - 0.01 * n; }, repeats, 0.02));
  s.parts.push_back(batch_part(repeats));
  s.parts.push_back(technique_part(repeats));
  s.parts.push_back(accuracy_part(repeats, 0.006));
  s.parts.push_back(layers_part());
  s.parts[0].points.back().repeats.push_back(
      failed(repeats, "rank 5 was lost after 12 steps: its process is gone (signal 9)"));
  s.claims = {{"vit", "Strong scaling is best from 1 to 2 devices: the time almost halves.",
               "tessera study studies/sample.toml", "1.83x", "holds", ">= 1.7"},
              {"techniques", "A pipeline with balance [2] is slower than one device.", "", "0.66x",
               "does not hold", "two ranks, not one"},
              {"vit", "32 nodes still speed up.", "", "–", "not testable here",
               "this machine has 2 cores"}};
  return s;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

}  // namespace tessera::report::test
