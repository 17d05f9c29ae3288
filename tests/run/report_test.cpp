// What a run writes for others: TensorBoard's records bit by bit, and CSV files that follow metrics.jsonl.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "files/scratch.h"
#include "files/text.h"
#include "report/metrics_log.h"
#include "run/environment.h"
#include "run/train_report.h"

namespace tessera::report::report_test {
namespace {

using nlohmann::ordered_json;
using test::Scratch;

template <class T>
T number(const std::string& bytes, std::size_t at) {
  T out;
  std::memcpy(&out, bytes.data() + at, sizeof(T));
  return out;
}

std::uint32_t masked(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

// The payloads of a TFRecord file, every checksum proved.
std::vector<std::string> records(const std::string& file) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < file.size();) {
    const auto length = static_cast<std::size_t>(number<std::uint64_t>(file, at));
    EXPECT_EQ(number<std::uint32_t>(file, at + 8), masked(crc32c(file.substr(at, 8))));
    out.push_back(file.substr(at + 12, length));
    EXPECT_EQ(number<std::uint32_t>(file, at + 12 + length), masked(crc32c(out.back())));
    at += 16 + length;
  }
  return out;
}

std::string events_of(const Scratch& scratch) {
  for (const auto& entry : std::filesystem::directory_iterator(scratch.folder()))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) return files::read_text(entry.path());
  return "";
}

TEST(TensorBoard, Checksum) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);  // the published check value of CRC-32C
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(TensorBoard, ScalarsAreWhereReadersLookForThem) {
  const Scratch scratch;
  {
    EventFile file(scratch.folder().string(), 301);
    file.scalars(302, {{"train/loss", 0.5}});
  }
  const std::vector<std::string> r = records(events_of(scratch));
  ASSERT_EQ(r.size(), 3u);
  EXPECT_EQ(r[0].substr(9),
            "\x1a\x0d"
            "brain.Event:2");                                                 // field 3, 13 bytes
  EXPECT_EQ(r[1].substr(9), std::string("\x10\xad\x02\x3a\x02\x08\x01", 7));  // step 301; session_log { status: START }
  std::string value = std::string("\x0a\x0a") + "train/loss" + "\x15" + std::string("\x00\x00\x00\x3f", 4);
  EXPECT_EQ(r[2].substr(9), std::string("\x10\xae\x02\x2a\x13\x0a\x11", 7) + value);
  EXPECT_EQ(r[2][0], '\x09');  // wall_time, a double
  EXPECT_GT(number<double>(r[2], 1), 1.6e9);
}

TEST(MetricsLog, IsCutAtTheCheckpointAndTheTablesFollow) {
  const Scratch scratch;
  const std::string folder = scratch.folder().string();
  std::int64_t at_two = 0;
  {
    MetricsLog log(folder, {});
    for (int step = 1; step <= 4; ++step) {
      ordered_json line = {{"kind", "step"}, {"step", step}, {"loss", 0.25 * step}};
      if (step == 2) line["loss"] = std::numeric_limits<double>::quiet_NaN(), line["skipped"] = true;
      log.append(line);
      if (step == 2) at_two = log.bytes();
    }
    log.append({{"kind", "epoch"}, {"epoch", 1}, {"step", 4}, {"test_top1", 0.5}});
  }
  EXPECT_NE(files::read_text(scratch / "epochs.csv").find("1,4,,,,,0.5,,\n"), std::string::npos);
  std::ofstream(scratch / "metrics.jsonl", std::ios::app) << "{\"kind\": \"st";  // torn by a kill
  {
    MetricsLog log(folder, {at_two, 3, true, false});
    EXPECT_EQ(log.kept().size(), 2u);
    EXPECT_EQ(log.bytes(), at_two);
    log.append({{"kind", "step"}, {"step", 3}, {"loss", 9.0}});
  }
  EXPECT_EQ(static_cast<std::int64_t>(files::read_text(scratch / "metrics.jsonl").find("\"step\":3") > 0), 1);
  EXPECT_EQ(
      files::read_text(scratch / "metrics.csv"),
      "step,epoch,loss,top1,lr,grad_norm,step_ms,images_per_s,mfu,comm_bytes,skipped\n1,,0.25,,,,,,,,\n2,,,,,,,,,,1\n3,,9.0,,,,,,,,\n");
  EXPECT_EQ(files::read_text(scratch / "epochs.csv"), "epoch,step,loss,train_top1,seconds,test_loss,test_top1,test_top5,test_top1_tta\n");
  // A file that is shorter than the checkpoint says keeps its whole lines.
  std::filesystem::resize_file(scratch / "metrics.jsonl", static_cast<std::uintmax_t>(at_two - 3));
  EXPECT_EQ(MetricsLog(folder, {at_two, 3, true, false}).kept().size(), 1u);
}

// Shares are of the step that was sampled, which may have taken longer than the one whose line it is.
TEST(TrainReport, SharesOfAStepAddUp) {
  StepMetrics m;
  m.step_ms = 1, m.breakdown = {30, 40, 100, 20, 10, 0};
  EXPECT_NE(run::step_line(m, 5).find("comp 30 comm 40 wait 20 data 10 %"), std::string::npos) << run::step_line(m, 5);
  m.breakdown.host = 100;
  EXPECT_NE(run::step_line(m, 5).find("comp 15 comm 20 wait 10 data 5 host 50 %"), std::string::npos) << run::step_line(m, 5);
}

TEST(TrainReport, MemoryIsThatOfTheRankWithTheMost) {
  const auto memory = [](const std::vector<plan::Memory>& ranks) { return run::introduction({}, ranks, 1, 1, "").back(); };
  constexpr std::int64_t mib = 1 << 20;
  const plan::Memory less{mib, 0, 0, mib, 0}, more{mib, 0, 0, 20 * mib, 0};
  EXPECT_EQ(memory({less, less}), "memory/rank  weights 1.0  grads 0.0  optim 0.0  activations 1.0  buffers 0.0  = 2.0 MiB");
  EXPECT_EQ(memory({less, more, more}),
            "memory/rank (most: rank 1)  weights 1.0  grads 0.0  optim 0.0  activations 20  buffers 0.0  = 21 MiB");
  EXPECT_TRUE(memory({more, less}).starts_with("memory/rank (most: rank 0)"));
}

// How, not how it was asked for; and where a key had no effect.
TEST(TrainReport, SaysHowRanksTalk) {
  config::Config config;
  const auto lines = [&](const std::string& how) {
    run::tell_how_ranks_talk(how);
    std::string out;
    for (const std::string& line : run::introduction(config, {plan::Memory{}}, 1, 1, "")) out += line + "\n";
    EXPECT_EQ(run::environment("cpu", 1).value("ranks_talk", ""), how);
    run::tell_how_ranks_talk("");
    return out;
  };
  EXPECT_EQ(lines("").find("ranks talk"), std::string::npos);
  EXPECT_NE(lines("mpi (no shared memory: x)").find("\nranks talk: mpi (no shared memory: x)\n"), std::string::npos);
  config.parallel.wire = "bf16";
  EXPECT_NE(lines("shared memory").find("\nranks talk: shared memory; parallel.wire = \"bf16\" changes nothing"), std::string::npos);
  EXPECT_NE(lines("ring over mpi").find("\nranks talk: ring over mpi\n"), std::string::npos);
}

}  // namespace
}  // namespace tessera::report::report_test
