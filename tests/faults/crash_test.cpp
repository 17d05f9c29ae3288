// The power goes while a training saves: every call of it is recorded, and of every moment what the
// disk may hold then is made again, torn and out of order. Every checkpoint that has its name is
// whole, and the same command goes on to the bits of a run that nobody disturbed.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <set>

#include "faults/crash.h"
#include "faults/sweep.h"
#include "preload/tape.h"

namespace tessera::test::faults::crash_test {
namespace {

using Kept = std::vector<bool>;

struct Effort {
  std::size_t all_of;  // up to so many pieces that nothing has flushed: every combination
  int random;          // above: so many by chance, beside every prefix and all but, and only, one
};

// Files whose loss or damage a run must bear, but which no checkpoint depends on: each is there as
// far as it was flushed, or whole.
bool counts(const Piece& piece) {
  return piece.path.starts_with("ckpt") || piece.path == ".saved" ||
         piece.path == "metrics.jsonl" || piece.path.starts_with(".tessera-");
}

// Every choice of pieces that `effort` asks for; `loose` are those that nothing has flushed.
void each_choice(std::size_t loose, const Effort& effort, std::mt19937_64& random,
                 const std::function<void(const Kept&)>& visit) {
  if (loose <= effort.all_of) {
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << loose; ++bits) {
      Kept choice(loose);
      for (std::size_t i = 0; i < loose; ++i) choice[i] = (bits >> i & 1) != 0;
      visit(choice);
    }
    return;
  }
  for (std::size_t first = 0; first <= loose; ++first) {
    Kept prefix(loose), but_one(loose, true), only_one(loose);
    std::fill(prefix.begin(), prefix.begin() + static_cast<std::ptrdiff_t>(first), true);
    visit(prefix);
    if (first == loose) break;
    but_one[first] = false;
    only_one[first] = true;
    visit(but_one);
    visit(only_one);
  }
  for (int i = 0; i < effort.random; ++i) {
    Kept some(loose);
    for (std::size_t k = 0; k < loose; ++k) some[k] = random() % 2 == 0;
    visit(some);
  }
}

struct Counted {
  std::int64_t moments = 0, exhaustive = 0, states = 0;
  std::vector<std::string> findings;
  std::map<std::string, Kept> distinct;  // by what can be seen of them
};

// Names and bytes, but for what is hidden: a run removes that whatever is in it.
std::string seen_of(const Tree& tree, int node = 0) {
  std::string out;
  for (const auto& [name, child] : tree.nodes.at(node).names) {
    out += name + "\n";
    const auto found = tree.nodes.find(child);
    if (found == tree.nodes.end() || name.starts_with(".")) continue;
    if (found->second.folder)
      out += "{" + seen_of(tree, child) + "}";
    else
      out += std::to_string(std::hash<std::string>()(found->second.bytes)) + "\n";
  }
  return out;
}

// Makes what may be left when the power goes right before the call `moment` (a flush, or the end).
// What may be left between two flushes is among it: later pieces may be missing.
void try_moment(const Tape& tape, std::int64_t moment, const Effort& effort,
                std::mt19937_64& random, Counted& out) {
  Kept kept;
  std::vector<std::size_t> loose;
  std::map<std::string, std::vector<std::size_t>> others;
  for (std::size_t i = 0; i < tape.pieces.size() && tape.pieces[i].time < moment; ++i) {
    const Piece& piece = tape.pieces[i];
    kept.push_back(piece.durable < moment);
    if (kept.back()) continue;
    if (counts(piece))
      loose.push_back(i);
    else
      others[piece.path].push_back(i);
  }
  ++out.moments;
  out.exhaustive += loose.size() <= effort.all_of;
  int turn = 0;
  each_choice(loose.size(), effort, random, [&](const Kept& choice) {
    for (std::size_t i = 0; i < loose.size(); ++i) kept[loose[i]] = choice[i];
    ++turn;
    for (const auto& [path, pieces] : others) {
      const bool there = turn % 3 == 0 || (turn % 3 == 1 && random() % 2 == 0);
      for (const std::size_t i : pieces) kept[i] = there;
    }
    const Tree tree = tree_of(tape, kept);
    if (const std::string wrong = judge(tape, tree, moment - 1); !wrong.empty())
      out.findings.push_back("before call " + std::to_string(moment) + ": " + wrong);
    ++out.states;
    out.distinct.emplace(seen_of(tree), kept);
  });
}

Counted try_all_moments(const Tape& tape, const Effort& effort, bool until_one_is_found = false) {
  Counted out;
  std::mt19937_64 random(11);
  std::set<std::int64_t> moments = {tape.calls};
  for (const Piece& piece : tape.pieces)
    if (piece.durable != Piece::never) moments.insert(piece.durable);
  for (const std::int64_t moment : moments)
    if (!until_one_is_found || out.findings.empty()) try_moment(tape, moment, effort, random, out);
  return out;
}

// The same command in a folder as the disk held it.
std::string go_on(const Ground& ground, const Tape& tape, const Kept& kept,
                  const fs::path& folder) {
  fs::remove_all(folder);
  const Tree tree = tree_of(tape, kept);
  tree.write_to(folder / "run");
  const std::vector<std::int64_t> there = steps_in(folder / "run");
  const Ended again = run_plainly(ground.command(folder / "run"), folder);
  const std::string said = "\n" + again.said;
  if (again.code != 0) return "the same command ends with " + std::to_string(again.code) + said;
  if (again.said.find("passed over") != again.said.npos) return "a checkpoint is damaged" + said;
  const std::string from =
      there.empty() ? "seed 0\n" : "resumed from step " + std::to_string(there.back()) + "\n";
  if (again.said.find("already finished") == again.said.npos &&
      again.said.find(from) == again.said.npos)
    return "it goes on from elsewhere than " + from + said;
  const std::string lacks = ground.difference(folder / "run");
  return lacks.empty() ? "" : lacks + said;
}

struct Recording {
  explicit Recording(const std::string& name) : folder(folder_for(name)) {
    fs::remove_all(folder / "run");
  }
  void make(const Ground& ground) {
    Started process(ground.command(folder / "run"), folder / "log",
                    {std::string("LD_PRELOAD=") + TESSERA_TAPE_PRELOAD,
                     std::string(tape_variable) + "=" + (folder / "tape").string(),
                     std::string(tape_under_variable) + "=" + (folder / "run").string()});
    ASSERT_EQ(process.wait(120), 0) << text_of(folder / "log");
    ASSERT_EQ(Tape(folder / "tape", folder / "run").end.difference(folder / "run"), "");
  }
  Tape tape(const std::string& forget = "") const {
    return Tape(folder / "tape", folder / "run", forget);
  }
  fs::path folder;
};

void expect_whole(const std::string& name, const Ground& ground, const Effort& effort,
                  std::size_t resumed) {
  Recording recording(name);
  recording.make(ground);
  const Tape tape = recording.tape();
  ASSERT_EQ(tape.checkpoints.size(), 3u);
  const Counted counted = try_all_moments(tape, effort);
  EXPECT_EQ(counted.findings.size(), 0u);
  for (std::size_t i = 0; i < std::min<std::size_t>(counted.findings.size(), 5); ++i)
    ADD_FAILURE() << counted.findings[i];
  std::int64_t k = 0, gone_on = 0;
  const std::int64_t step =
      std::max<std::int64_t>(1, std::ssize(counted.distinct) / static_cast<std::int64_t>(resumed));
  for (const auto& [seen, kept] : counted.distinct) {
    if (++k % step != 0 || !in_shard(k / step)) continue;
    ++gone_on;
    const std::string wrong = go_on(ground, tape, kept, folder_for(name + "_again"));
    EXPECT_EQ(wrong, "") << "state " << k;
  }
  print_counts(name, {{"calls", tape.calls},
                      {"flushes", tape.syncs},
                      {"moments", counted.moments},
                      {"exhaustive", counted.exhaustive},
                      {"states", counted.states},
                      {"distinct", std::ssize(counted.distinct)},
                      {"gone on", gone_on}});
}

const std::string tiny = "--set model.dim=16 --set model.mlp=24 --set model.heads=2 ";

const Ground& tiny_ground() {
  static const Ground ground("crash_ground", tiny);
  return ground;
}

TEST(Crash, ACheckpointIsThereWholeOrNotAtAll) { expect_whole("crash", tiny_ground(), {5, 8}, 6); }
TEST(Long, ACrashAtEveryFlush) { expect_whole("crash_long", tiny_ground(), {12, 400}, 1'000'000); }
TEST(Long, ACrashAtEveryFlushOfTwoProcesses) {
  expect_whole("crash_two", Ground("crash_two_ground", tiny + "--np 2 "), {12, 400}, 1'000'000);
}

// Without a flush the same states would show a checkpoint that is torn.
TEST(Crash, AFlushThatIsMissingIsFound) {
  Recording recording("crash_missing");
  recording.make(tiny_ground());
  for (const char* forgotten : {"/.tessera-", "ckpt/.part-step-4"})
    EXPECT_FALSE(try_all_moments(recording.tape(forgotten), {4, 4}, true).findings.empty())
        << forgotten;
}

}  // namespace
}  // namespace tessera::test::faults::crash_test
