// Updates of state that rests on the host or in a file, planned and run by every device of this
// build: the same bits as on the device, in run after run, and no other bytes than were planned.
#include <gtest/gtest.h>

#include <filesystem>

#include "ops/on_device.h"
#include "plan/plan.h"

namespace tessera::test::away_test {
namespace {

// An update of 5000 elements, and one of 300.
std::string updates(const std::string& home) {
  return R"(program t mesh()
  input w : f32[5000] param "w"
  input m : f32[5000] state "m")" +
         home + R"(
  input v : f32[5000] state "v")" +
         home + R"(
  input x : f32[300] param "x"
  input n : f32[300] state "n")" +
         home + R"(
  input g : f32[5000] batch "g"
  input h : f32[300] batch "h"
  input lr : f32[] scalar "lr"
  input t : i64[] scalar "t"
  w1 : f32[5000], m1 : f32[5000], v1 : f32[5000] = adamw weight_decay=0.1 w m v g lr t
  x1 : f32[300], n1 : f32[300] = sgd momentum=0.9 x n h lr
  s : f32[] = sumsq w1
  output "w" = w1 updates "w"
  output "m" = m1 updates "m"
  output "v" = v1 updates "v"
  output "x" = x1 updates "x"
  output "n" = n1 updates "n"
  output "s" = s
)";
}

using Buffers = std::map<std::string, std::vector<std::byte>>;

// Three runs, each submitted before the one before it was waited for where the device can do that.
Buffers run_on(exec::Executor& executor, const std::string& home, bool overlap) {
  const ir::Program program = ir::parse(updates(home));
  const plan::Plan plan = plan::lower(program, 0, executor.target(), overlap);
  const std::unique_ptr<exec::Loaded> loaded = executor.load(plan);
  EXPECT_EQ(executor.allocated_bytes(), plan.peak_bytes());
  for (const ir::Home away : {ir::Home::host, ir::Home::file})
    EXPECT_EQ(executor.away_bytes(away), plan.bytes_on(away));
  const auto numbers = [](std::size_t n, std::size_t seed) {
    std::vector<float> out(n);
    for (std::size_t i = 0; i < n; ++i)
      out[i] = static_cast<float>(static_cast<int>((i * 37 + seed * 101) % 199) - 99) / 64.0f;
    return out;
  };
  const std::vector<float> w = numbers(5000, 7), m = numbers(4900, 8);
  executor.write_persistent("w", 0, std::as_bytes(std::span(w)));
  executor.write_persistent("m", 400, std::as_bytes(std::span(m)));
  std::vector<exec::Ticket> tickets;
  for (std::int64_t step = 1; step <= 3; ++step) {
    const float rate = 0.01f;
    const auto seed = static_cast<std::size_t>(step);
    const std::vector<float> g = numbers(5000, seed), h = numbers(300, seed);
    loaded->write("g", std::as_bytes(std::span(g)));
    loaded->write("h", std::as_bytes(std::span(h)));
    loaded->write("lr", std::as_bytes(std::span(&rate, 1)));
    loaded->write("t", std::as_bytes(std::span(&step, 1)));
    tickets.push_back(loaded->submit({.spans = step == 3}));
  }
  for (exec::Ticket& ticket : tickets) EXPECT_GT(ticket.wait().scalar("s"), 0);
  Buffers out;
  for (const plan::Buffer& buffer : plan.persistent) {
    std::vector<std::byte>& bytes = out[buffer.name];
    bytes.resize(static_cast<std::size_t>(buffer.bytes));
    executor.read_persistent(buffer.name, 0, bytes);
  }
  return out;
}

class Away : public EveryDevice {};

TEST_P(Away, StateHasTheSameBitsAsOnTheDevice) {
  const std::string folder = std::filesystem::temp_directory_path().string();
  const auto fresh = [&] {
    return exec::make_executor(GetParam(), 2, {}, exec::Carrier::host, folder);
  };
  const Buffers resident = run_on(*fresh(), "", true);
  EXPECT_NE(resident.at("n"), std::vector<std::byte>(resident.at("n").size()));
  for (const char* home : {" on host by 4096", " on file by 4096", " on host by 1000000"})
    for (const bool overlap : {true, false})
      EXPECT_EQ(run_on(*fresh(), home, overlap), resident) << home << " overlap " << overlap;
}

FOR_EVERY_DEVICE(Away);

}  // namespace
}  // namespace tessera::test::away_test
