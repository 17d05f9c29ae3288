// A run writes this for others: TensorBoard's records bit by bit, and CSV files that follow
// metrics.jsonl.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "files/scratch.h"
#include "files/text.h"
#include "measure/environment.h"
#include "ranks/launch.h"
#include "report/metrics_log.h"
#include "train/train_log.h"
#include "train/train_report.h"

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
    if (entry.path().filename().string().starts_with("events.out.tfevents."))
      return files::read_text(entry.path());
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
            "brain.Event:2");  // field 3, 13 bytes
  EXPECT_EQ(r[1].substr(9), std::string("\x10\xad\x02\x3a\x02\x08\x01",
                                        7));  // step 301; session_log { status: START }
  std::string value =
      std::string("\x0a\x0a") + "train/loss" + "\x15" + std::string("\x00\x00\x00\x3f", 4);
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
      if (step == 2) {
        line["loss"] = std::numeric_limits<double>::quiet_NaN();
        line["skipped"] = true;
      }
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
  EXPECT_EQ(
      static_cast<std::int64_t>(files::read_text(scratch / "metrics.jsonl").find("\"step\":3") > 0),
      1);
  EXPECT_EQ(files::read_text(scratch / "metrics.csv"),
            "step,epoch,loss,top1,lr,grad_norm,step_ms,images_per_s,mfu,comm_bytes,skipped,loss_"
            "scale\n1,,0.25,,,,,,,,,\n2,,,,,,,,,,1,\n3,,9.0,,,,,,,,,\n");
  EXPECT_EQ(files::read_text(scratch / "epochs.csv"),
            "epoch,step,loss,train_top1,seconds,test_loss,test_top1,test_top5,test_top1_tta\n");
}

// Three lines; returns how long they are.
std::int64_t three_lines(const std::string& folder) {
  MetricsLog log(folder, {});
  for (int step = 1; step <= 3; ++step)
    log.append({{"kind", "step"}, {"step", step}, {"loss", 0.25 * step}});
  return log.bytes();
}

// Every line is JSON, and the file is as long as the checkpoint knows it.
void expect_mended(const std::string& path, std::int64_t bytes) {
  const std::string text = files::read_text(path);
  EXPECT_EQ(static_cast<std::int64_t>(text.size()), bytes);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(line.empty() || nlohmann::json::parse(line, nullptr, false).is_object()) << line;
}

// A file that is shorter than the checkpoint says keeps its whole lines, as it was it stays aside,
// and offsets mean what they meant.
TEST(MetricsLog, AFileThatLostItsEndIsKeptAside) {
  for (const std::int64_t missing : {1, 2, 3, 15, 16, 17, 60}) {
    const Scratch scratch;
    const std::string folder = scratch.folder().string(), path = folder + "/metrics.jsonl";
    const std::int64_t bytes = three_lines(folder);
    std::filesystem::resize_file(path, static_cast<std::uintmax_t>(bytes - missing));
    const std::string found = files::read_text(path);
    for (int again = 0; again < 2; ++again) {  // a process that is killed before its next
                                               // checkpoint comes back to the same length
      MetricsLog log(folder, {bytes, 4, true, false});
      EXPECT_EQ(log.kept().size(), missing < 40 ? 2u : 1u) << missing;
      EXPECT_EQ(log.bytes(), bytes);
      EXPECT_EQ(log.warnings().size(), again == 0 ? 1u : 0u);
      expect_mended(path, bytes);
      log.append({{"kind", "step"}, {"step", 4}, {"loss", 1.0}});
    }
    EXPECT_EQ(files::read_text(path + ".damaged"), found);
    EXPECT_FALSE(std::filesystem::exists(path + ".damaged-2"));
  }
}

TEST(MetricsLog, ALineThatIsDamagedOrAFileThatIsGoneIsSaid) {
  const Scratch scratch;
  const std::string folder = scratch.folder().string(), path = folder + "/metrics.jsonl";
  const std::int64_t bytes = three_lines(folder);
  std::string text = files::read_text(path);
  text[text.find("\"step\":2") - 3] ^= 0x10;
  files::write_atomically(path, text);
  {
    const MetricsLog log(folder, {bytes, 4, true, false});
    ASSERT_EQ(log.warnings().size(), 1u);
    EXPECT_NE(log.warnings()[0].find("1 of 3 lines cannot be read, the first is line 2"),
              std::string::npos)
        << log.warnings()[0];
    EXPECT_EQ(log.kept().size(), 2u);
  }
  expect_mended(path, bytes);
  EXPECT_EQ(files::read_text(path + ".damaged"), text);
  std::filesystem::remove(path);
  const MetricsLog log(folder, {bytes, 4, true, false});
  ASSERT_EQ(log.warnings().size(), 1u);
  EXPECT_NE(log.warnings()[0].find("is gone"), std::string::npos) << log.warnings()[0];
  expect_mended(path, bytes);
}

TEST(MetricsLog, ANumberThatHasChangedIsSaid) {
  const Scratch scratch;
  const std::string folder = scratch.folder().string(), path = folder + "/metrics.jsonl";
  const std::int64_t bytes = three_lines(folder);
  const std::string text = files::read_text(path), hash = files::hash_text(files::xxh3(text));
  EXPECT_EQ(MetricsLog(folder, {bytes, 4, true, false, hash}).hash(), hash);
  EXPECT_TRUE(MetricsLog(folder, {bytes, 4, true, false, hash}).warnings().empty());
  std::string changed = text;
  changed.at(text.find("\"step\":2") + 7) = '3';
  files::write_atomically(path, changed);
  const MetricsLog log(folder, {bytes, 4, true, false, hash});
  ASSERT_EQ(log.warnings().size(), 1u);
  EXPECT_NE(log.warnings()[0].find("some numbers are not those"), std::string::npos);
  EXPECT_EQ(files::read_text(path), changed);
}

TEST(MetricsLog, AnOlderFileThatCannotBeReadIsRefusedAndStays) {
  const Scratch scratch;
  const std::string folder = scratch.folder().string(), path = folder + "/metrics.jsonl";
  std::filesystem::create_symlink("metrics.jsonl",
                                  path);  // too many levels of links: there, and nobody can open it
  const Error error = test::error_of([&] { MetricsLog(folder, {100, 4, true, false}); });
  EXPECT_EQ(error.kind, ErrorKind::disk);
  EXPECT_NE(std::string(error.what()).find("cannot be taken up"), std::string::npos)
      << error.what();
  EXPECT_TRUE(std::filesystem::is_symlink(path));
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_EQ(test::error_of([&] {
              MetricsLog(folder, {100, 4, true, false});
            }).kind,
            ErrorKind::disk);
}

// Shares are of the step that was sampled, which may have taken longer than the one whose line it
// is.
TEST(TrainReport, SharesOfAStepAddUp) {
  StepMetrics m;
  m.step_ms = 1;
  m.breakdown = {30, 40, 100, 20, 10, 0};
  EXPECT_NE(run::step_line(m, 5).find("comp 30 comm 40 wait 20 data 10 %"), std::string::npos)
      << run::step_line(m, 5);
  m.breakdown.host = 100;
  EXPECT_NE(run::step_line(m, 5).find("comp 15 comm 20 wait 10 data 5 host 50 %"),
            std::string::npos)
      << run::step_line(m, 5);
  m.breakdown = {};  // no step has been sampled yet
  EXPECT_EQ(run::step_line(m, 5).find("comp"), std::string::npos) << run::step_line(m, 5);
}

TEST(TrainReport, MemoryIsThatOfTheRankWithTheMost) {
  const auto memory = [](const std::vector<plan::Memory>& ranks) {
    return run::introduction({}, ranks, 0, 1, 1, "").back();
  };
  constexpr std::int64_t mib = 1 << 20;
  const plan::Memory less{mib, 0, 0, mib, 0}, more{mib, 0, 0, 20 * mib, 0};
  EXPECT_EQ(
      memory({less, less}),
      "memory/rank  weights 1.0  grads 0.0  optim 0.0  activations 1.0  buffers 0.0  = 2.1 MB");
  EXPECT_EQ(memory({less, more, more}),
            "memory/rank (most: rank 1)  weights 1.0  grads 0.0  optim 0.0  activations 21  "
            "buffers 0.0  = 22 MB");
  EXPECT_TRUE(memory({more, less}).starts_with("memory/rank (most: rank 0)"));
}

// 100 steps a process, an evaluation of 300 images after every 50, 2 s a step, 30 s an evaluation.
TEST(Pace, SecondsToGoAreThoseOfStepsAndEvaluationsToCome) {
  run::Pace pace{.first = 0, .total = 100, .step = 25, .evaluations = 2, .images = 300};
  EXPECT_DOUBLE_EQ(pace.left(50), 150) << "nothing is known of an evaluation";
  pace.images_per_s = 5;  // in training; forward alone three times that
  EXPECT_DOUBLE_EQ(pace.left(50), 150 + 2 * 20);
  pace.step = 50;
  pace.under_way_s = 12;  // of the first evaluation
  EXPECT_DOUBLE_EQ(pace.left(112), 100 + 2 * 20 - 12);
  pace.under_way_s = 0;
  pace.evaluated = 1;
  pace.evaluated_s = 30;
  pace.evaluations = 1;
  EXPECT_DOUBLE_EQ(pace.left(130), 100 + 30) << "as long as the one that was seen";
  pace.under_way_s = 45;  // the last one takes longer than the first
  pace.step = 100;
  EXPECT_DOUBLE_EQ(pace.left(275), 0);
}

// The work of an earlier process took none of this one's seconds.
TEST(Pace, AfterAResumeTheRateIsThatOfThisProcess) {
  run::Pace pace{.first = 900, .total = 1000, .step = 910, .evaluations = 1, .images = 300};
  EXPECT_DOUBLE_EQ(pace.left(20), 180);
  pace.step = 900;  // no step is done yet
  EXPECT_DOUBLE_EQ(pace.left(0), 0);
}

// The first line says which folder was chosen.
TEST(TrainReport, TheFirstLineNamesTheFolder) {
  config::Config config;
  config.run.name = "vit_micro-synthetic-np2";
  config.run.out = "runs/vit_micro-synthetic-np2";
  const auto first = [&] {
    return run::introduction(config, {plan::Memory{}}, 0, 1, 1, "").front();
  };
  EXPECT_NE(first().find("  run runs/vit_micro-synthetic-np2  seed 0"), std::string::npos)
      << first();
  config.run.out = "elsewhere/x";
  EXPECT_NE(first().find("  run vit_micro-synthetic-np2 in elsewhere/x  seed 0"), std::string::npos)
      << first();
}

// How, not how it was asked for; and where a key had no effect.
TEST(TrainReport, SaysHowRanksTalk) {
  config::Config config;
  const auto lines = [&](const std::string& how) {
    run::tell_how_ranks_talk(how);
    std::string out;
    for (const std::string& line : run::introduction(config, {plan::Memory{}}, 0, 1, 1, ""))
      out += line + "\n";
    EXPECT_EQ(run::environment("cpu", "f32", 1).value("ranks_talk", ""), how);
    run::tell_how_ranks_talk("");
    return out;
  };
  EXPECT_EQ(lines("").find("ranks talk"), std::string::npos);
  EXPECT_NE(lines("mpi (no shared memory: x)").find("\nranks talk: mpi (no shared memory: x)\n"),
            std::string::npos);
  config.parallel.wire = "bf16";
  EXPECT_NE(lines("shared memory")
                .find("\nranks talk: shared memory; parallel.wire = \"bf16\" changes nothing"),
            std::string::npos);
  EXPECT_NE(lines("ring over mpi").find("\nranks talk: ring over mpi\n"), std::string::npos);
}

}  // namespace
}  // namespace tessera::report::report_test
