#include "faults/sweep.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace tessera::test::faults {
namespace {

using nlohmann::json;

constexpr std::int64_t kept = 2;  // checkpoint.keep unless given

std::set<std::string> hidden_in(const fs::path& folder) {
  std::set<std::string> out;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(folder, gone))
    if (const std::string name = entry.path().filename(); name.starts_with(".")) out.insert(name);
  return out;
}

std::string tail_of(const std::string& said) {
  return said.size() > 900 ? "... " + said.substr(said.size() - 900) : said;
}

// Calls whose failure is a loss unless somebody hears of it: of data, or of room on the disk.
bool must_be_said(const Fault& fault) {
  const bool writes = fault.call == Call::write || fault.call == Call::fsync ||
                      fault.call == Call::rename || fault.call == Call::truncate;
  return writes && fault.action == "fail";
}

void judge_code(const Fault& fault, const Ended& ended, const fs::path& run,
                std::vector<std::string>& findings) {
  static const std::set<int> documented = {0, 2, 4, 9};
  if (fault.action == "die") {
    if (ended.code != 128 + SIGKILL && ended.code != 7)
      findings.push_back("exit code " + std::to_string(ended.code) + " after its death");
    return;
  }
  if (ended.code == Ended::hang) return findings.push_back("it hangs");
  if (!documented.contains(ended.code))
    return findings.push_back("exit code " + std::to_string(ended.code));
  if (ended.code != 0 && !names_a_file(ended.said, run))
    findings.push_back("the error names no file of the run");
  if (ended.code == 0 && must_be_said(fault) && !names_a_file(ended.said, run))
    findings.push_back("nothing is said of the failure");
}

// A checkpoint that a run could not use and set aside, which it says, is not lost.
std::vector<std::int64_t> with_those_aside(std::vector<std::int64_t> steps, const fs::path& run) {
  const std::string aside = "aside-step-";
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(run / "ckpt", none))
    if (const std::string name = entry.path().filename(); name.starts_with(aside))
      steps.push_back(std::stoll(name.substr(aside.size())));
  std::sort(steps.begin(), steps.end());
  return steps;
}

void judge_checkpoints(const std::vector<std::int64_t>& before, const fs::path& run,
                       std::vector<std::string>& findings) {
  if (before.empty()) return;
  const std::vector<std::int64_t> after = with_those_aside(steps_in(run), run);
  if (after.empty() || after.back() < before.back())
    return findings.push_back("the newest checkpoint, of step " + std::to_string(before.back()) +
                              ", is gone");
  if (std::ssize(after) < std::min<std::int64_t>(kept, std::ssize(before)))
    findings.push_back("an older checkpoint is gone");
}

const char* words_of(Start start) {
  return start == Start::fresh ? "fresh " : start == Start::resumed ? "resumed " : "finished ";
}

// The run's folder, below `folder`, as it is when the run starts.
fs::path prepared(const Ground& ground, Start start, const fs::path& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  fs::create_directories(folder);
  if (start != Start::fresh)
    fs::copy(start == Start::resumed ? ground.half : ground.whole, folder / "run",
             fs::copy_options::recursive);
  return folder / "run";
}

// Where the disturbed run began: at its newest checkpoint, or at an older one and then with a word
// on each newer one.
void judge_start(const std::vector<std::int64_t>& before, const Ended& ended,
                 std::vector<std::string>& findings) {
  const std::size_t line = ended.said.find("  seed 0");
  if (before.empty() || line == std::string::npos) return;
  const std::string introduced = ended.said.substr(line, ended.said.find('\n', line) - line),
                    from = "resumed from step ";
  if (introduced.find(from) == std::string::npos)
    return findings.push_back("it starts over, although there are checkpoints");
  const std::int64_t began = std::stoll(introduced.substr(introduced.find(from) + from.size()));
  for (const std::int64_t step : before)
    if (step > began && ended.said.find("ckpt/step-" + std::to_string(step)) == std::string::npos)
      findings.push_back("it goes on from step " + std::to_string(began) +
                         " without a word on step " + std::to_string(step));
}

// The same command without the fault.
void judge_sequel(const Ground& ground, const fs::path& run, const fs::path& folder,
                  std::vector<std::string>& findings) {
  const std::vector<std::int64_t> there = steps_in(run);
  const Ended again = run_plainly(ground.command(run), folder);
  if (again.code != 0)
    return findings.push_back("the same command does not go on: exit code " +
                              std::to_string(again.code) + "\n" + tail_of(again.said));
  const bool finished = again.said.find("already finished") != std::string::npos;
  const std::string from =
      there.empty() ? "seed 0\n" : "resumed from step " + std::to_string(there.back()) + "\n";
  if (!finished && again.said.find(from) == std::string::npos)
    findings.push_back("it goes on from elsewhere than its newest checkpoint:\n" +
                       tail_of(again.said));
  if (again.said.find("passed over") != std::string::npos)
    findings.push_back("a checkpoint is damaged:\n" + tail_of(again.said));
  if (const std::string lacks = ground.difference(run); !lacks.empty())
    findings.push_back("after going on: " + lacks);
  if (finished) return;
  for (const char* place : {".", "ckpt"})
    for (const std::string& name : hidden_in(run / place))
      if (!hidden_in(ground.whole / place).contains(name))
        findings.push_back("left behind: " + (run / place / name).string());
}

}  // namespace

bool names_a_file(const std::string& said, const fs::path& run) {
  std::istringstream lines(said);
  bool sentence = false;
  for (std::string line; std::getline(lines, line);) {
    sentence |= line.find("error:") != line.npos || line.find("warning:") != line.npos ||
                line.find("note:") != line.npos;
    if (sentence && line.find(run.string()) != line.npos) return true;
  }
  return false;
}

std::vector<std::int64_t> steps_in(const fs::path& run) {
  std::vector<std::int64_t> out;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(run / "ckpt", none))
    if (const std::string name = entry.path().filename(); name.starts_with("step-"))
      out.push_back(std::stoll(name.substr(5)));
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> numbers_of(const fs::path& run) {
  std::vector<std::string> out;
  std::istringstream lines(text_of(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const json m = json::parse(line, nullptr, false);
    if (!m.is_object()) {
      out.push_back("no JSON: " + line);
      continue;
    }
    std::string text = m.value("kind", "?") + " " + m.value("step", json()).dump();
    for (const char* key : {"loss", "top1", "train_top1", "test_loss", "test_top1"})
      text += " " + m.value(key, json()).dump();
    out.push_back(text);
  }
  return out;
}

Ground::Ground(const std::string& name, const std::string& more)
    : flags(more.empty() ? "" : more + " ") {
  const fs::path folder = scratch_folder() / name;
  whole = folder / "whole";
  half = folder / "half";
  if (const Ended ended = run_plainly(command(whole), folder); ended.code != 0)
    throw std::runtime_error("the undisturbed run fails: " + ended.said);
  numbers = numbers_of(whole);
  Fault death{.call = Call::rename, .n = 1, .action = "die", .only = "ckpt/step-4"};
  if (const Ended ended = run_with(death, command(half), half, folder);
      ended.fired != 1 || steps_in(half) != std::vector<std::int64_t>{2, 4})
    throw std::runtime_error("no killed run with checkpoints of steps 2 and 4: " + ended.said);
}

const Ground& one_rank() {
  static const Ground one("one", "");
  return one;
}

fs::path folder_for(const std::string& name, bool resumed) {
  const fs::path folder = scratch_folder() / name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  if (resumed) fs::copy(one_rank().half, folder / "run", fs::copy_options::recursive);
  return folder;
}

std::string Ground::difference(const fs::path& folder) const {
  for (const auto& entry : fs::directory_iterator(whole)) {
    const std::string name = entry.path().filename();
    // A process that has nothing left to compute has no steps to trace.
    if (name.starts_with("events.") || name == "trace.json") continue;
    if (!fs::exists(folder / name)) return "no " + name;
  }
  if (text_of(folder / "weights.safetensors") != text_of(whole / "weights.safetensors"))
    return "other weights";
  if (const auto mine = numbers_of(folder); mine != numbers) {
    std::string out = "other metrics:";
    for (const std::string& line : mine) out += "\n    " + line;
    return out;
  }
  const auto rows = [](const fs::path& csv) {
    const std::string text = text_of(csv);
    return std::count(text.begin(), text.end(), '\n');
  };
  if (rows(folder / "metrics.csv") != rows(whole / "metrics.csv"))
    return "other rows in metrics.csv";
  const std::vector<std::int64_t> mine = steps_in(folder), theirs = steps_in(whole);
  // Old ones that could not be removed do no harm; the next process removes them.
  if (!std::includes(mine.begin(), mine.end(), theirs.begin(), theirs.end()))
    return "other checkpoints";
  const json summary = json::parse(text_of(folder / "summary.json"), nullptr, false);
  if (!summary.is_object() ||
      summary["final"] != json::parse(text_of(whole / "summary.json"))["final"])
    return "another summary.json";
  return "";
}

void Tally::print(const std::string& name) const {
  std::vector<std::pair<std::string, std::int64_t>> counts = {{"faults", cases},
                                                              {"passed by", passed_by},
                                                              {"ended it", refused},
                                                              {"not reached", unreached},
                                                              {"findings", std::ssize(findings)}};
  for (const auto& [code, count] : codes) counts.push_back({"exit " + std::to_string(code), count});
  for (const auto& [call, count] : calls)
    counts.push_back({std::string(call_names[static_cast<std::size_t>(call)]), count});
  print_counts(name, counts);
}

void Tally::add(const Tally& other) {
  cases += other.cases;
  passed_by += other.passed_by;
  refused += other.refused;
  unreached += other.unreached;
  for (const auto& [code, count] : other.codes) codes[code] += count;
  for (const auto& [call, count] : other.calls) calls[call] += count;
  findings.insert(findings.end(), other.findings.begin(), other.findings.end());
}

Tally try_fault(const Ground& ground, Start start, const Fault& fault, const fs::path& folder) {
  const fs::path run = prepared(ground, start, folder);
  const std::vector<std::int64_t> before = steps_in(run);
  const Ended ended = run_with(fault, ground.command(run), run, folder);
  std::vector<std::string> findings;
  Tally out;
  if (ended.fired == 0 && ended.code == 0) {
    out.unreached = 1;
    return out;
  }
  out.cases = 1;
  ++out.codes[ended.code];
  ++out.calls[fault.call];
  judge_code(fault, ended, run, findings);
  judge_start(before, ended, findings);
  judge_checkpoints(before, run, findings);
  if (ended.code == 0) {
    out.passed_by = 1;
    if (const std::string lacks = ground.difference(run); !lacks.empty())
      findings.push_back("exit code 0, but " + lacks);
  } else {
    out.refused = 1;
    judge_sequel(ground, run, folder / "again", findings);
  }
  for (const std::string& finding : findings) {
    const std::string path = fs::path(ended.first).lexically_relative(run).string();
    out.findings.push_back(words_of(start) + ground.flags + fault.words() + " (" + path +
                           "): " + finding + "\n" + tail_of(ended.said));
    std::printf("finding: %s\n",
                out.findings.back().substr(0, out.findings.back().find('\n')).c_str());
    std::fflush(stdout);
  }
  return out;
}

Ended count_calls(const Ground& ground, Start start, const fs::path& folder) {
  const fs::path run = prepared(ground, start, folder);
  return run_with({}, ground.command(run), run, folder);
}

Tally try_all(const Ground& ground, Start start, const std::vector<Fault>& faults) {
  const char* told = std::getenv("TESSERA_FAULT_JOBS");
  const std::size_t jobs =
      told ? std::stoul(told) : std::max(1u, std::thread::hardware_concurrency() / 2);
  std::atomic<std::size_t> next = 0;
  std::vector<Tally> tallies(jobs);
  std::vector<std::thread> threads;
  for (std::size_t job = 0; job < jobs; ++job)
    threads.emplace_back([&, job] {
      for (std::size_t at; (at = next++) < faults.size();)
        if (in_shard(static_cast<std::int64_t>(at)))
          tallies[job].add(try_fault(ground, start, faults[at],
                                     scratch_folder() / ("case-" + std::to_string(job))));
    });
  for (std::thread& thread : threads) thread.join();
  Tally out;
  for (const Tally& tally : tallies) out.add(tally);
  return out;
}

}  // namespace tessera::test::faults
