// Runs of every kind of part, their order and their identity.
#include "study/grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "files/scratch.h"
#include "study/launch.h"

namespace tessera::study::grid_test {
namespace {

const std::string head =
    "[study]\nname = \"q\"\nrepeats = 2\n[base]\nmodel.name = \"vit_micro\"\nrun.epochs = "
    "1\nrun.seed = 7\n";

Plan planned(const std::string& text) {
  return plan_study(config::study_from_text(text, "s.toml"));
}
std::string value(const Pairs& pairs, const std::string& key) {
  for (const auto& [k, v] : pairs)
    if (k == key) return v;
  return "-";
}

TEST(Grid, EveryCombinationBaselineFirst) {
  const Plan plan = planned(head +
                            "[[part]]\nname = \"a\"\nkind = \"strong\"\nset = { \"batch.global\" = "
                            "32 }\ngrid = { \"run.np\" = [1, 2], "
                            "\"batch.accumulate\" = [1, 4] }\n");
  ASSERT_EQ(plan.points.size(), 4u);
  EXPECT_EQ(point_name(plan.points[0]), "run.np=1 batch.accumulate=1");
  EXPECT_EQ(point_name(plan.points[1]), "run.np=1 batch.accumulate=4");
  EXPECT_EQ(point_name(plan.points[2]), "run.np=2 batch.accumulate=1");
  EXPECT_EQ(plan.points[3].ranks, 2);
  EXPECT_EQ(plan.points[3].batch, 32);
  EXPECT_EQ(plan.points[3].seed, 7);
  EXPECT_EQ(value(plan.points[3].keys, "batch.accumulate"), "4");
  EXPECT_EQ(value(plan.points[3].keys, "run.seed"), "-");  // each repeat has its own
  ASSERT_EQ(plan.runs.size(), 8u);
  std::set<std::string> identities, folders;
  for (const PlannedRun& run : plan.runs) {
    identities.insert(run.identity);
    folders.insert(run.folder);
  }
  EXPECT_EQ(identities.size(), 8u);
  EXPECT_EQ(folders.size(), 8u);
}

TEST(Grid, WeakScalingKeepsTheWorkOfARank) {
  const Plan plan = planned(head +
                            "[[part]]\nname = \"a\"\nkind = \"weak\"\nset = { \"batch.global\" = "
                            "16, \"data.fraction\" = 0.2 }\ngrid = { "
                            "\"run.np\" = [2, 4, 6] }\n");
  ASSERT_EQ(plan.points.size(), 3u);
  for (const auto& [point, batch, fraction] :
       {std::tuple(0, "16", "0.2"), {1, "32", "0.4"}, {2, "48", "0.6"}}) {
    const PlannedPoint& p = plan.points[static_cast<std::size_t>(point)];
    EXPECT_EQ(value(p.keys, "batch.global"), batch);
    EXPECT_EQ(value(p.keys, "data.fraction"), fraction);
    EXPECT_EQ(value(p.fixed, "batch.global"), batch);
    EXPECT_EQ(value(p.fixed, "data.fraction"), fraction);
  }
}

TEST(Grid, TechniquesAtEveryPoint) {
  const Plan plan = planned(head +
                            "[[part]]\nname = \"t\"\nkind = \"techniques\"\ngrid = { "
                            "\"batch.global\" = [16, 32] }\n[[part.technique]]\nname = \"one\"\n"
                            "[[part.technique]]\nname = \"two\"\nset = { \"parallel.dp\" = 2 "
                            "}\n[[part]]\nname = \"i\"\nkind = \"batch\"\nverb = \"infer\"\n"
                            "grid = { \"batch.global\" = [1, 8] }\n");
  ASSERT_EQ(plan.points.size(), 6u);
  EXPECT_EQ(point_name(plan.points[1]), "one batch.global=32");
  EXPECT_EQ(plan.points[2].technique, "two");
  EXPECT_EQ(plan.points[2].ranks, 2);
  const config::StudyFile file =
      config::study_from_text(head +
                                  "[[part]]\nname = \"i\"\nkind = \"batch\"\nverb = "
                                  "\"infer\"\ngrid = { \"batch.global\" = [8] }\n",
                              "s.toml");
  const Plan infer = plan_study(file);
  EXPECT_EQ(shell_line(command_of(file, infer.points[0], infer.runs[1], "f", "b", false), "b"),
            "tessera bench infer --set batch.global=8 --set model.name=vit_micro --set "
            "run.epochs=1 --set run.seed=8 --batch 8 --json");
}

TEST(Grid, TurnsGoThereAndBack) {
  const Plan plan = planned(
      "[study]\nname = \"q\"\nrepeats = 3\n[base]\nmodel.name = \"vit_micro\"\nrun.epochs = "
      "1\n[[part]]\nname = \"a\"\nkind = "
      "\"batch\"\ngrid = { \"batch.global\" = [8, 16] }\n"
      "[[part]]\nname = \"b\"\nkind = \"accuracy\"\nrepeats = 1\n");
  std::string order;
  for (const PlannedRun& run : plan.runs)
    order += std::to_string(run.point) + "." + std::to_string(run.repeat) + " ";
  EXPECT_EQ(order, "0.0 1.0 2.0 1.1 0.1 0.2 1.2 ");
  for (std::size_t p = 0; p < plan.points.size(); ++p)
    for (std::size_t r = 0; r < plan.points[p].runs.size(); ++r) {
      EXPECT_EQ(plan.runs[plan.points[p].runs[r]].point, p);
      EXPECT_EQ(plan.runs[plan.points[p].runs[r]].repeat, static_cast<int>(r));
    }
}

std::map<std::string, std::string> identities(const Plan& plan) {
  std::map<std::string, std::string> out;
  for (const PlannedRun& run : plan.runs)
    out[point_name(plan.points[run.point]) + " " + std::to_string(run.repeat)] = run.identity;
  return out;
}

TEST(Grid, IdentityOutlivesEdits) {
  const std::string part = "[[part]]\nname = \"a\"\nkind = \"batch\"\n",
                    grid = "grid = { \"batch.global\" = [8, 16] }\n";
  const auto before = identities(planned(head + part + grid));
  // Another order, titles, further values and parts, more repeats: what was run is still found.
  const auto after =
      identities(planned("[[part]]\nname = \"a\"\nkind = \"batch\"\ntitle = \"T\"\nwhat = "
                         "\"W\"\ngrid = { \"batch.global\" = [32, 16, 8] }\n"
                         "[base]\nrun.seed = 7\nrun.epochs = 1\nmodel.name = "
                         "\"vit_micro\"\n[study]\nname = \"other\"\nrepeats = 5\n"
                         "[[part]]\nname = \"b\"\nkind = \"accuracy\"\n"));
  for (const auto& [run, identity] : before) EXPECT_EQ(after.at(run), identity) << run;
  // A key that changes a run changes its identity.
  for (const std::string change : {"set = { \"optim.lr\" = 0.5 }\n", "verb = \"infer\"\n"}) {
    const auto other = identities(planned(head + part + change + grid));
    for (const auto& [run, identity] : before) EXPECT_NE(other.at(run), identity) << run << change;
  }
}

TEST(Grid, TheConfigurationUnderItCounts) {
  const test::Scratch scratch;
  const auto path = scratch / "s.toml";
  const auto plan_with = [&](const char* text) {
    std::ofstream(scratch / "base.toml") << text;
    return plan_study(
        config::study_from_text("[study]\nname = \"q\"\n[base]\nconfig = "
                                "\"base.toml\"\n[[part]]\nname = \"a\"\nkind = \"accuracy\"\n",
                                path.string()));
  };
  const Plan one = plan_with("[model]\nname = \"vit_micro\"\n[run]\nepochs = 1\nseed = 3\n"),
             two = plan_with("[model]\nname = \"vit_micro\"\n[run]\nepochs = 2\nseed = 3\n");
  EXPECT_EQ(one.points[0].seed, 3);
  EXPECT_NE(one.runs[0].identity, two.runs[0].identity);
}

// Where the hostfile lies does not count, what is in it does: as much of it as the run uses.
TEST(Grid, TheHostsCount) {
  const test::Scratch scratch;
  const std::string text =
      head +
      "[launch]\nwith = \"mpirun\"\nhostfile = \"hosts\"\n[[part]]\nname = \"a\"\nkind = "
      "\"accuracy\"\n"
      "[[part]]\nname = \"b\"\nkind = \"accuracy\"\nset = { \"launch.hosts\" = 2 }\n";
  std::filesystem::create_directories(scratch / "other");
  const auto planned_in = [&](const std::string& folder, const char* hosts) {
    std::ofstream(scratch / folder / "hosts") << hosts;
    std::vector<std::string> out;
    for (const PlannedRun& run :
         plan_study(config::study_from_text(text, (scratch / folder / "s.toml").string()), true)
             .runs)
      out.push_back(run.identity);
    return out;
  };
  const auto before = planned_in("", "node1\nnode2\n");
  EXPECT_EQ(planned_in("other", "# all\nnode1\nnode2\n"), before);
  const auto more = planned_in("", "node1\nnode2\nnode3\n"),
             other = planned_in("", "node1\nnode3\n");
  EXPECT_NE(more[0], before[0]);
  EXPECT_EQ(more[1], before[1]);  // the first two, as before
  EXPECT_NE(other[0], before[0]);
  EXPECT_NE(other[1], before[1]);
}

TEST(Grid, AllProblemsOfAllPointsWithTheirNames) {
  try {
    planned(head +
            "[[part]]\nname = \"a\"\nkind = \"strong\"\ngrid = { \"run.np\" = [1, 2], "
            "\"parallel.tp\" = [1, 3] }\n[[part]]\nname = "
            "\"b\"\nkind = \"accuracy\"\n"
            "set = { \"optim.lr\" = -1, \"launch.throttle\" = \"x\", \"launch.hosts\" = 2 }\n");
    FAIL() << "accepted";
  } catch (const config::ConfigError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("part a, run.np=1 parallel.tp=3: "), std::string::npos) << text;
    EXPECT_NE(text.find("part b: optim.lr = -1"), std::string::npos) << text;
    EXPECT_NE(text.find("s.toml:"), std::string::npos) << text;
    EXPECT_EQ(e.exit_code(), 2);
  }
  try {
    planned(head +
            "[[part]]\nname = \"b\"\nkind = \"accuracy\"\nset = { \"launch.throttle\" = \"x\", "
            "\"launch.hosts\" = 2 }\n");
    FAIL() << "accepted";
  } catch (const config::ConfigError& e) {
    EXPECT_EQ(e.problems.size(), 2u) << e.what();
    EXPECT_NE(std::string(e.what()).find("RANK:SHARE"), std::string::npos);
  }
}

std::string refusal(const std::string& text, const std::string& path) {
  try {
    plan_study(config::study_from_text(text, path), true);
  } catch (const config::ConfigError& e) {
    return e.what();
  }
  return "";
}

TEST(Grid, FilesThatAreNotThereAreSaidWithTheirPlace) {
  const test::Scratch scratch;
  const std::string path = (scratch / "s.toml").string(),
                    part = "[[part]]\nname = \"a\"\nkind = \"accuracy\"\n";
  const std::string config =
      refusal("[study]\nname = \"q\"\n[base]\nconfig = \"none.toml\"\n" + part, path);
  EXPECT_NE(config.find(path + ":4:10: config: "), std::string::npos) << config;
  EXPECT_NE(config.find("relative to the study's file"), std::string::npos) << config;
  EXPECT_EQ(config.find("working directory"), std::string::npos) << config;
  const std::string launch = head + "[launch]\nwith = \"mpirun\"\nhostfile = \"hosts\"\n" + part;
  EXPECT_NE(refusal(launch, path).find(path + ":10:12: hostfile: "), std::string::npos)
      << refusal(launch, path);
  std::ofstream(scratch / "hosts") << "# two\nnode1\nnode2\n";
  EXPECT_EQ(refusal(launch + "set = { \"launch.hosts\" = 2 }\n", path), "");
  const std::string many = refusal(launch + "set = { \"launch.hosts\" = 3 }\n", path);
  EXPECT_NE(many.find("launch.hosts = 3, but "), std::string::npos) << many;
  EXPECT_NE(many.find("has only 2"), std::string::npos) << many;
  const std::string words = refusal(
      launch + "set = { \"launch.hosts\" = \"x\" }\ngrid = { \"run.np\" = [1, 2] }\n", path);
  EXPECT_NE(words.find("launch.hosts: expected a whole number"), std::string::npos) << words;
  // Ranks that find no room.
  const std::string ranks = "grid = { \"run.np\" = [2, 3], \"launch.per_host\" = [0, 1] }\n",
                    room = refusal(launch + ranks, path);
  EXPECT_NE(
      room.find("part a, run.np=3 launch.per_host=1: 3 ranks do not fit on 2 hosts with 1 on each"),
      std::string::npos)
      << room;
  EXPECT_EQ(room.find("run.np=2"), std::string::npos) << room;
  EXPECT_EQ(room.find("launch.per_host=0"), std::string::npos) << room;
  const std::string one = refusal(
      launch + "set = { \"launch.hosts\" = 1, \"launch.per_host\" = 1, \"run.np\" = 2 }\n", path);
  EXPECT_NE(one.find("2 ranks do not fit on 1 host with 1 on each"), std::string::npos) << one;
}

TEST(Grid, NumbersBeyondTheirLimitsAreRefused) {
  const std::string weak =
      "[[part]]\nname = \"a\"\nkind = \"weak\"\nset = { \"batch.global\" = 16 }\ngrid = { "
      "\"run.np\" = [1, ";
  const std::string ranks = refusal(head + weak + "9223372036854775807] }\n", "s.toml");
  EXPECT_NE(ranks.find("run.np"), std::string::npos) << ranks;
  EXPECT_EQ(ranks.find("shared out"), std::string::npos) << ranks;
  const std::string part =
      "[[part]]\nname = \"b\"\nkind = \"accuracy\"\nset = { \"run.seed\" = 9200000000000000000 "
      "}\nrepeats = ";
  EXPECT_EQ(refusal(head + part + "1\n", "s.toml"), "");
  const std::string seed = refusal(head + part + "2\n", "s.toml");
  EXPECT_NE(seed.find("passes the largest seed"), std::string::npos) << seed;
}

TEST(Launch, RanksOfAHost) {
  const auto of = [](const std::string& launch, const std::string& set) {
    const config::StudyFile file = config::study_from_text(
        head + "[launch]\n" + launch +
            "[[part]]\nname = \"a\"\nkind = \"accuracy\"\nset = { \"run.np\" = 8" + set + " }\n",
        "s.toml");
    return ranks_per_host(file, plan_study(file).points[0]);
  };
  EXPECT_EQ(of("", ""), 8);
  EXPECT_EQ(of("with = \"srun\"\n", ""), 8);
  EXPECT_EQ(of("with = \"srun\"\n", ", \"launch.hosts\" = 3"), 3);
  EXPECT_EQ(of("with = \"srun\"\nper_host = 2\n", ", \"launch.hosts\" = 8"), 2);
  EXPECT_EQ(of("with = \"srun\"\nper_host = 2\n", ", \"launch.per_host\" = 16"), 8);
}

TEST(Launch, Words) {
  const test::Scratch scratch;
  std::ofstream(scratch / "hosts.txt") << "# all\nnode1 slots=1\n\nnode2\nnode3\n";
  const config::StudyFile file = config::study_from_text(
      "[study]\nname = \"q\"\n[launch]\nwith = \"mpirun\"\nhostfile = \"hosts.txt\"\nper_host = "
      "1\narguments = [\"--bind-to\", "
      "\"core\"]\n[base]\nmodel.name = \"vit_micro\"\n"
      "run.epochs = 1\n[[part]]\nname = \"a\"\nkind = \"strong\"\ngrid = { \"run.np\" = [1, 4] "
      "}\nset = { \"launch.hosts\" = 2, "
      "\"launch.per_host\" = 2 }\n",
      (scratch / "s.toml").string());
  const Plan plan = plan_study(file);
  const auto words = command_of(file, plan.points[1], plan.runs[1], scratch / "", "tessera", true);
  EXPECT_EQ(
      shell_line(words, "tessera"),
      "mpirun -np 4 --hostfile " + (scratch / "hosts.txt").string() +
          " --map-by ppr:2:node --bind-to core tessera train --set model.name=vit_micro --set "
          "run.epochs=1 --set run.np=4 --set run.seed=0 --out " +
          (scratch / "").string() + " --fresh --quiet --json");
  std::ifstream hosts(scratch / "hosts.txt");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(hosts), {}), "node1 slots=1\nnode2\n");
  EXPECT_EQ(shell_line({"b", "it's", "a b", "$(x)"}, "b"), R"(tessera 'it'\''s' 'a b' '$(x)')");
}

}  // namespace
}  // namespace tessera::study::grid_test
