// Pipelines in a configuration: what follows for keys that were not given, what is noted, and the
// words of each refusal. Convention: problems come from resolve() itself, all of them; one that
// only says that a build has no pipelines is left out.
#include <gtest/gtest.h>

#include <algorithm>

#include "config/fields.h"
#include "config/pipeline.h"
#include "config/print.h"
#include "config/reader.h"
#include "config/validate.h"

namespace tessera::config::pipeline_test {
namespace {

using Sets = std::vector<std::string>;

struct Resolved {
  Config config;
  Sets problems, notes;  // a problem: "message; advice"
};

Resolved resolved(const std::string& model, const Sets& sets, int world = 0) {
  Resolved out;
  out.config.model = models::preset(model);
  Given given;
  for (const std::string& set : sets) {
    const auto dot = set.find('.'), equals = set.find('=');
    const std::string section = set.substr(0, dot), key = set.substr(dot + 1, equals - dot - 1),
                      text = set.substr(equals + 1);
    Value value;
    value.kind = Value::Kind::text;
    value.text = text;
    if (key != "schedule") value = read_value(text);
    EXPECT_FALSE(assign(*find_field(section, key), out.config, value)) << set;
    given[section + "." + key] = {"--set " + set};
  }
  Outcome outcome = resolve(out.config, given, {}, {Purpose::other, "", world, false});
  for (const Problem& p : outcome.problems)
    if (p.message.find("this build has no pipelines yet") == p.message.npos)
      out.problems.push_back(p.message + "; " + p.advice);
  out.notes = std::move(outcome.notes);
  return out;
}

TEST(Pipeline, BlocksOfAModel) {
  for (const auto& [model, blocks] :
       std::vector<std::pair<std::string, std::int64_t>>{{"vit_tiny_cifar", 12},
                                                         {"vit_l_16", 24},
                                                         {"swin_t", 15},
                                                         {"resnet18_cifar", 8},
                                                         {"resnet50", 16}})
    EXPECT_EQ(models::block_count(models::preset(model)), blocks) << model;
}

TEST(Pipeline, SoundOnesAreAccepted) {
  for (const Sets& sets : std::vector<Sets>{
           {"parallel.pp=4", "batch.accumulate=8", "batch.global=64"},
           {"parallel.pp=12"},
           {"parallel.pp=3", "parallel.stages=[6,4,2]"},
           {"parallel.pp=2", "parallel.stages=time", "parallel.schedule=gpipe"},
           {"parallel.pp=2", "parallel.stages=params", "parallel.schedule=zb"},
           {"parallel.pp=2", "parallel.schedule=file:a b.txt"},
           {"parallel.pp=3", "parallel.chunks=4", "parallel.schedule=interleaved"},
           {"parallel.segments=6"},
           {"parallel.segments=2", "parallel.stages=[11,1]"},
           {"parallel.pp=2", "parallel.tp=3", "parallel.dp=2", "parallel.zero=3", "ema.decay=0.9"},
           {"parallel.pp=2", "parallel.sp=3", "parallel.dp=2", "parallel.zero=2",
            "parallel.compress=int8"},
           {"parallel.pp=2", "parallel.chunks=2", "parallel.schedule=file:mine.txt"},
           {"parallel.pp=2", "parallel.dp=2", "parallel.weights=measured"}})
    EXPECT_EQ(resolved("vit_tiny_cifar", sets).problems, Sets{}) << join(sets, " ");
  EXPECT_EQ(resolved("swin_t", {"parallel.pp=15"}).problems, Sets{});
  EXPECT_EQ(resolved("resnet50",
                     {"parallel.pp=8", "parallel.schedule=interleaved", "model.batch_norm=sync"})
                .problems,
            Sets{});
}

TEST(Pipeline, WhatFollowsAndWhatIsNoted) {
  const Sets many = {"parallel.pp=4", "batch.accumulate=8", "batch.global=64"};
  Resolved r = resolved("vit_tiny_cifar", many, 8);
  EXPECT_EQ(r.config.parallel.dp, 2);
  EXPECT_EQ(r.config.run.np, 8);
  EXPECT_EQ(r.config.parallel.stages.word, "flops");
  EXPECT_EQ(pipeline_stages(r.config.parallel), 4);
  EXPECT_EQ(r.notes, Sets{});
  r = resolved("vit_tiny_cifar", {many[0], many[1], many[2], "parallel.schedule=interleaved"});
  EXPECT_EQ(r.config.parallel.chunks, 2);
  EXPECT_EQ(pipeline_stages(r.config.parallel), 8);
  EXPECT_EQ(r.notes, Sets{"parallel.chunks = 2, because parallel.schedule = \"interleaved\""});
  r = resolved("vit_tiny_cifar",
               {"parallel.segments=3", "parallel.schedule=zb-h1", "parallel.stages=[]"});
  EXPECT_EQ(r.config.parallel.schedule, "zb");
  EXPECT_EQ(r.config.parallel.stages.word, "flops");
  EXPECT_EQ(pipeline_stages(r.config.parallel), 3);
  EXPECT_EQ(r.notes, Sets{"parallel.schedule = \"zb\" is for several ranks: the 3 segments of one "
                          "rank run fill-drain (gpipe)"});
  EXPECT_EQ(resolved("vit_tiny_cifar", {"parallel.segments=3"}).notes, Sets{});
  EXPECT_EQ(
      resolved("vit_tiny_cifar", {"parallel.pp=2"}).notes,
      Sets{
          "parallel.pp = 2 with one micro-batch: the pipeline is a relay; raise batch.accumulate"});
  EXPECT_EQ(resolved("vit_tiny_cifar", {"parallel.schedule=zb"}).notes,
            Sets{"parallel.schedule = \"zb\" orders nothing: there is one stage"});
  EXPECT_EQ(resolved("vit_tiny_cifar", {"parallel.schedule=1f1b"}).notes, Sets{});
}

TEST(Pipeline, WrongOnesAreRefusedClearly) {
  struct Wrong {
    std::string model;
    Sets sets;
    Sets says;  // one part for each problem, in order
  };
  const std::string vit = "vit_tiny_cifar";
  for (const Wrong& row : std::vector<Wrong>{
           {vit,
            {"parallel.pp=13"},
            {"parallel.pp = 13: more stages than the 12 blocks of the model; every stage needs a "
             "block: at most 12"}},
           {vit,
            {"parallel.segments=13"},
            {"parallel.segments = 13: more stages than the 12 blocks of the model"}},
           {vit,
            {"parallel.pp=4", "parallel.chunks=4", "parallel.schedule=interleaved"},
            {"parallel.pp x parallel.chunks = 4 x 4 = 16: more stages than the 12 blocks"}},
           {"resnet18_cifar",
            {"parallel.pp=5", "parallel.schedule=interleaved"},
            {"needs 2 stages or more on each rank: 10 with parallel.pp = 5, but the model has 8 "
             "blocks; choose parallel.pp up to 4, or "
             "1f1b"}},
           {vit,
            {"parallel.pp=2", "parallel.chunks=1", "parallel.schedule=interleaved"},
            {"\"interleaved\" needs 2 stages or more on each rank, but parallel.chunks = 1; choose "
             "parallel.chunks = 2, or 1f1b"}},
           {vit,
            {"parallel.pp=2", "parallel.chunks=2"},
            {"parallel.chunks = 2 needs parallel.schedule = \"interleaved\", not \"1f1b\"; choose "
             "interleaved or file:PATH, or leave "
             "chunks at 1"}},
           {vit,
            {"parallel.chunks=2", "parallel.schedule=interleaved"},
            {"parallel.chunks = 2 are stages on each of several ranks, but parallel.pp = 1; choose "
             "parallel.pp > 1, or parallel.segments = "
             "2"}},
           {vit,
            {"parallel.segments=2", "parallel.schedule=interleaved"},
            {"\"interleaved\" deals stages to several ranks"}},
           {vit,
            {"parallel.segments=2", "parallel.pp=2"},
            {"parallel.segments = 2 are stages on one rank, but parallel.pp = 2; leave"}},
           {vit,
            {"parallel.pp=2", "parallel.schedule=interleave"},
            {"\"interleave\" is not known; did you mean interleaved? choose gpipe"}},
           {vit,
            {"parallel.pp=2", "parallel.schedule=file:"},
            {"\"file:\" does not say where the file is; write file:PATH"}},
           {vit,
            {"parallel.stages=[6,6]"},
            {"parallel.stages has 2 numbers, but there is 1 stage: parallel.segments = 1; choose "
             "parallel.pp = 2"}},
           {vit,
            {"parallel.pp=3", "parallel.stages=[6,6]"},
            {"parallel.stages has 2 numbers, but there are 3 stages: parallel.pp = 3; give"}},
           {vit,
            {"parallel.pp=2", "parallel.stages=[6,7]"},
            {"parallel.stages adds up to 13 blocks, but the model has 12; every block"}},
           {vit,
            {"parallel.stages=[1]"},
            {"parallel.stages adds up to 1 block, but the model has 12"}},
           {"swin_t",
            {"parallel.pp=2", "parallel.stages=[6,6]"},
            {"adds up to 12 blocks, but the model has 15"}},
           {vit,
            {"parallel.pp=2", "parallel.stages=[6.5,5.5]"},
            {"parallel.stages: expected whole numbers of blocks, 1 or more, found 6.5"}},
           {vit,
            {"parallel.pp=13", "parallel.segments=2", "parallel.chunks=2", "parallel.schedule=gpip",
             "parallel.stages=[1,2]"},
            {"\"gpip\" is not known", "parallel.segments = 2 are stages on one rank",
             "13 x 2 = 26: more stages than the 12 blocks",
             "parallel.stages has 2 numbers, but there are 26 stages",
             "parallel.stages adds up to 3 blocks"}},
       }) {
    const Resolved r = resolved(row.model, row.sets);
    EXPECT_EQ(r.problems.size(), row.says.size()) << join(row.sets, " ") << "\n"
                                                  << join(r.problems, "\n");
    for (std::size_t i = 0; i < std::min(r.problems.size(), row.says.size()); ++i)
      EXPECT_NE(r.problems[i].find(row.says[i]), std::string::npos)
          << r.problems[i] << "\nlacks: " << row.says[i];
  }
}

TEST(Pipeline, AnUnsoundModelIsNotAskedForItsBlocks) {
  const Resolved r = resolved("swin_t", {"model.heads=[3,6]", "parallel.pp=40"});
  ASSERT_EQ(r.problems.size(), 1u) << join(r.problems, "\n");
  EXPECT_NE(r.problems[0].find("model.heads"), std::string::npos) << r.problems[0];
}

TEST(Pipeline, DeepSpeedSaysHowManyStages) {
  const auto loaded = [](const std::string& stages) {
    const std::string json =
        R"({"train_batch_size": 32, "gradient_accumulation_steps": 4, "pipeline": {"partition": "best")" +
        stages + "}}";
    return load_inputs({"", "", json, "ds.json", {}, Purpose::other, 1});
  };
  const auto note = [](const Loaded& l, std::string_view key) {
    for (const Effective& e : l.deepspeed)
      if (e.deepspeed == key) return e.note;
    return std::string("no row");
  };
  EXPECT_EQ(loaded(R"(, "stages": 1)").config.parallel.pp, 1);
  EXPECT_EQ(loaded(R"(, "stages": "auto")").config.parallel.pp, 1);
  EXPECT_EQ(note(loaded(R"(, "stages": "auto")"), "pipeline.stages"), "parallel.pp says");
  EXPECT_EQ(note(loaded(""), "pipeline.partition"), "no effect here");
  const DeepSpeedReading two = read_deepspeed(R"({"pipeline": {"stages": 2}})", "ds.json");
  const auto pp = std::find_if(two.settings.begin(), two.settings.end(),
                               [](const auto& s) { return s.key == "parallel.pp"; });
  ASSERT_NE(pp, two.settings.end());
  EXPECT_EQ(pp->value.integer, 2);
  const DeepSpeedReading text = read_deepspeed(R"({"pipeline": {"stages": "two"}})", "ds.json");
  ASSERT_EQ(text.problems.size(), 1u);
  EXPECT_EQ(text.problems[0].message, "pipeline.stages: expected a whole number, found \"two\"");
}

}  // namespace
}  // namespace tessera::config::pipeline_test
