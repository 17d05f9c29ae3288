// Optimizer state on the host or in a file, on a card: the same bits as on the card, more state
// than the card is given memory for, and copies that use the link as well as copies alone do.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/check.h"
#include "cuda/card.h"
#include "exec/cuda/handles.h"
#include "exec/executor.h"
#include "session/init.h"

namespace tessera::test::offload_card_test {
namespace {

using namespace exec::cuda;

class OnCardOffload : public OnCard {};

using Weights = std::map<std::string, std::vector<double>>;

Weights trained(config::Config c) {
  c.parallel.offload_folder = std::filesystem::temp_directory_path().string();
  run::Session session(c);
  session.load(run::initial_weights(3));
  for (int step = 1; step <= 20; ++step) {
    const Samples s = samples_of(c.model, step, c.batch.global);
    EXPECT_TRUE(session.train_step(s.images, s.labels, 1e-3, step, step * 16).ok);
  }
  return session.parameters(run::Weights::live);
}

TEST_F(OnCardOffload, HasTheSameBitsAsOnTheCard) {
  config::Config c = preset_on("cuda", "vit_micro", "bf16", 16);
  const Weights resident = trained(c);
  for (const char* home : {"host", "file"})
    for (const double mb : {1.0 / 64, 16.0}) {
      c.parallel.offload_optimizer = home;
      c.parallel.offload_mb = mb;
      EXPECT_EQ(trained(c), resident) << home << " " << mb;
    }
}

// The weights that ZeRO 3 cuts come before each layer, with moments on the card and away.
TEST_F(OnCardOffload, WeightsHaveTheSameBitsAsOnTheCard) {
  for (const char* optimizer : {"adamw", "lamb"}) {
    config::Config c = preset_on("cuda", "vit_micro", "bf16", 16);
    c.optim.name = optimizer;
    c.parallel.zero = 3;
    c.parallel.persist = 64;
    c.parallel.offload_mb = 1.0 / 64;
    const Weights resident = trained(c);
    for (const char* params : {"host", "file"})
      for (const char* moments : {"none", "host", "file"}) {
        c.parallel.offload_params = params;
        c.parallel.offload_optimizer = moments;
        EXPECT_EQ(trained(c), resident) << optimizer << " " << params << " " << moments;
      }
  }
}

// A card of so much memory, as far as this process asks.
class Capped {
 public:
  explicit Capped(std::int64_t mib) {
    ::setenv("TESSERA_CUDA_MEMORY_MB", std::to_string(mib).c_str(), 1);
  }
  ~Capped() { ::unsetenv("TESSERA_CUDA_MEMORY_MB"); }
};

// Weights and moments of 60 million parameters take more than the card has; offloaded they do not.
TEST_F(OnCardOffload, TrainsWhatDoesNotFitACappedCard) {
  config::Config c = preset_on("cuda", "vit_micro", "bf16", 4);
  c.model.dim = 768;
  c.model.heads = 12;
  c.model.depth = 8;
  c.model.mlp = 3072;
  c.parallel.zero = 3;
  const auto peak = [](const config::Config& config) {
    run::Session session(config);
    return session.planned({run::Goal::train, 4}).plan.peak_bytes();
  };
  config::Config away = c;
  away.parallel.offload_optimizer = away.parallel.offload_params = "host";
  away.parallel.offload_mb = 1;
  const std::int64_t resident_bytes = peak(c), away_bytes = peak(away),
                     cap = (away_bytes >> 20) + 8;
  std::printf("planned: resident %lld bytes, offloaded %lld bytes; the card has %lld MiB\n",
              static_cast<long long>(resident_bytes), static_cast<long long>(away_bytes),
              static_cast<long long>(cap));
  ASSERT_GT(resident_bytes, 2 * (cap << 20));
  const Weights resident = trained(c);
  const Capped capped(cap);
  try {
    trained(c);
    ADD_FAILURE() << "more than the card has was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 8);
    EXPECT_NE(std::string(error.what()).find("asked for: weights and state"), std::string::npos)
        << error.what();
  }
  for (const char* home : {"host", "file"}) {
    away.parallel.offload_optimizer = away.parallel.offload_params = home;
    EXPECT_EQ(trained(away), resident) << home;
  }
}

constexpr std::int64_t elements = std::int64_t{1} << 26, piece = std::int64_t{16} << 20;

// An update of 64 Mi weights, whose state is 512 MiB.
std::string update() {
  const std::string type = " : f32[" + std::to_string(elements) + "]",
                    away = " on host by " + std::to_string(piece) + "\n";
  return "program t mesh()\n  input w" + type + " param \"w\"\n  input g" + type +
         " param \"g\"\n  input m" + type + " state \"m\"" + away + "  input v" + type +
         " state \"v\"" + away +
         "  input lr : f32[] scalar \"lr\"\n  input t : i64[] scalar \"t\"\n  w1" + type + ", m1" +
         type + ", v1" + type +
         " = adamw w m v g lr t\n  output \"w\" = w1 updates \"w\"\n"
         "  output \"m\" = m1 updates \"m\"\n  output \"v\" = v1 updates \"v\"\n";
}

// The same bytes in the same pieces, both ways at once, and nothing else.
double copies_alone_ms(std::int64_t bytes) {
  const Stream up = make_stream(), down = make_stream();
  const PinnedBytes host = pin(2 * piece);
  void* raw = nullptr;
  must(::cudaMalloc(&raw, 2 * piece), "take memory of the card");
  const DeviceBytes card(static_cast<std::byte*>(raw));
  double best = 1e30;
  for (int round = 0; round < 4; ++round) {
    must(::cudaDeviceSynchronize(), "wait for the card");
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t done = 0; done < bytes; done += piece) {
      copy(card.get(), host.get(), piece, cudaMemcpyHostToDevice, up, "up");
      copy(host.get() + piece, card.get() + piece, piece, cudaMemcpyDeviceToHost, down, "down");
    }
    must(::cudaDeviceSynchronize(), "wait for the card");
    best = std::min(
        best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
                  .count());
  }
  return best;
}

TEST_F(OnCardOffload, UsesFourFifthsOfTheLink) {
  const std::unique_ptr<exec::Executor> executor = exec::make_executor("cuda", 2);
  const plan::Plan plan = plan::lower(ir::parse(update()), 0, executor->target(), true);
  const std::unique_ptr<exec::Loaded> loaded = executor->load(plan);
  const std::int64_t state = 2 * 4 * elements;
  EXPECT_EQ(executor->allocated_bytes(), plan.peak_bytes());
  EXPECT_EQ(executor->away_bytes(ir::Home::host), state);
  // Weights and gradients, and of the state three pieces of each moment.
  EXPECT_LE(plan.peak_bytes(), state + 3 * 2 * piece + 4096);
  double best = 1e30;
  for (std::int64_t step = 1; step <= 6; ++step) {
    const float rate = 0.01f;
    loaded->write("lr", std::as_bytes(std::span(&rate, 1)));
    loaded->write("t", std::as_bytes(std::span(&step, 1)));
    best = std::min(best, loaded->run().timeline.wall_ms);
  }
  const double alone = copies_alone_ms(state);
  std::printf("state of %lld bytes: update %.2f ms, copies alone %.2f ms: %.1f%% of the link\n",
              static_cast<long long>(state), best, alone, 100 * alone / best);
  EXPECT_GE(alone / best, 0.8);
}

}  // namespace
}  // namespace tessera::test::offload_card_test
