// The mesh: what follows for axes that were not given, and a table of wrong launches and
// configurations with the words of each refusal. Convention: a refusal is usage (exit code 2) and
// names the offending key with its number.
#include <gtest/gtest.h>

#include "config/print.h"
#include "config/reader.h"

namespace tessera::config::layout_test {
namespace {

using Sets = std::vector<std::string>;

std::vector<Override> overrides(const Sets& sets) {
  std::vector<Override> out;
  for (const std::string& set : sets) out.push_back(from_set(set));
  return out;
}

Loaded launch(int world, const Sets& sets, const std::string& toml = "") {
  return load_all_text(toml, "t.toml", overrides(sets), Purpose::other, world);
}

std::string refusal(int world, const Sets& sets, const std::string& toml = "") {
  try {
    launch(world, sets, toml);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::usage);
    EXPECT_EQ(e.exit_code(), 2);
    return e.what();
  }
  return "(accepted)";
}

TEST(Layout, DataParallelRanksAreWhatIsLeft) {
  const auto dp = [](int world, const Sets& sets) {
    const Config c = launch(world, sets).config;
    EXPECT_EQ(c.run.np, c.parallel.dp * c.parallel.tp * c.parallel.pp * c.parallel.sp);
    return c.parallel.dp;
  };
  EXPECT_EQ(dp(0, {}), 1);
  EXPECT_EQ(dp(1, {}), 1);
  EXPECT_EQ(dp(8, {}), 8);
  EXPECT_EQ(dp(6, {"parallel.tp=3"}), 2);
  EXPECT_EQ(dp(12, {"model.name=vit_b_16", "parallel.tp=2", "parallel.sp=3"}), 2);
  EXPECT_EQ(dp(0, {"run.np=6", "parallel.tp=3"}), 2);
  EXPECT_EQ(dp(0, {"parallel.tp=3"}),
            1);  // nothing is started yet: the mesh says how many it wants
  EXPECT_EQ(launch(0, {"parallel.tp=3", "parallel.dp=4"}).config.run.np, 12);
  EXPECT_EQ(dp(4, {"run.np=4"}), 4);
}

TEST(Layout, TheBatchFollowsTheRanks) {
  EXPECT_EQ(launch(4, {"batch.global=64"}).config.batch, (Batch{64, 16, 1}));
  EXPECT_EQ(launch(4, {"batch.global=64", "batch.micro=4"}).config.batch, (Batch{64, 4, 4}));
  EXPECT_EQ(launch(6, {"parallel.tp=3", "batch.micro=4", "batch.accumulate=3"}).config.batch,
            (Batch{24, 4, 3}));
  EXPECT_EQ(launch(3, {"batch.global=10", "batch.accumulate=2"}).config.batch, (Batch{10, 2, 2}));
}

TEST(Layout, ResolvedFilesRepeatTheLayout) {
  for (const int world : {1, 2, 6}) {
    const Config c =
        launch(world, {"run.steps=1", "lr.warmup=0", "batch.global=10", "batch.micro=3"}).config;
    EXPECT_EQ(load_text(to_toml(c), "resolved.toml", {}, Purpose::train, world), c);
    EXPECT_EQ(load_text(to_toml(c), "resolved.toml", {}, Purpose::train),
              c);  // run.np says how many to start
  }
  const Config c = launch(6, {"model.name=vit_b_16", "parallel.sp=3"}).config;
  EXPECT_EQ(c.parallel.sequence, "ulysses");
  EXPECT_EQ(load_text(to_toml(c), "resolved.toml", {}, Purpose::other, 6), c);
}

TEST(Layout, NotesSayWhatWasDecided) {
  const auto note = [](int world, const Sets& sets) {
    return join(launch(world, sets).notes, "\n");
  };
  EXPECT_EQ(note(2, {}), "");
  EXPECT_EQ(note(3, {"parallel.sp=3"}), "parallel.sequence = \"ulysses\", because parallel.sp = 3");
  EXPECT_EQ(note(1, {"parallel.zero=2"}),
            "parallel.zero = 2 shares out nothing: there is one data-parallel rank");
  EXPECT_EQ(note(1, {"parallel.sequence=ulysses"}),
            "parallel.sequence = \"ulysses\" shares out nothing with parallel.sp = 1");
  EXPECT_EQ(note(1, {"parallel.wire=bf16"}),
            "parallel.wire = \"bf16\" changes nothing: there is one rank");
  EXPECT_EQ(note(2, {"parallel.wire=bf16"}), "");  // between machines it does
  EXPECT_EQ(note(2, {"parallel.wire=bf16", "parallel.all_reduce=ring", "precision.dtype=f64"}),
            "parallel.wire = \"bf16\" changes nothing: it is for f32 sums, and precision.dtype = "
            "\"f64\" has none");
  EXPECT_EQ(note(2, {"parallel.comm=nccl", "run.device=cuda", "parallel.all_reduce=ring"}),
            "parallel.all_reduce = \"ring\" changes nothing: NCCL adds up between cards");
  EXPECT_EQ(note(2, {"parallel.comm=nccl", "run.device=cuda", "parallel.wire=bf16"}),
            "parallel.wire = \"bf16\" changes nothing: NCCL adds up between cards");
  EXPECT_EQ(note(2, {"parallel.comm=local", "parallel.all_reduce=ring"}),
            "parallel.all_reduce = \"ring\" changes nothing: ranks that are threads add up in each "
            "other's memory");
  EXPECT_EQ(note(1, {"parallel.all_reduce=ring"}),
            "parallel.all_reduce = \"ring\" changes nothing: there is one rank");
  EXPECT_NE(note(2, {"batch.global=10", "batch.micro=4"}).find("batch.micro = 4 becomes 3"),
            std::string::npos);
}

TEST(Layout, SoundOnesAreAccepted) {
  struct Row {
    int world;
    Sets sets;
  };
  for (const Row& row : std::vector<Row>{
           {12, {"model.name=vit_b_16", "parallel.tp=12"}},
           {4,
            {"model.name=vit_b_16", "parallel.tp=2", "parallel.sequence=megatron",
             "parallel.zero=3", "parallel.persist=0"}},
           {3, {"model.name=swin_t", "parallel.tp=3", "parallel.sequence=megatron"}},
           {64, {"model.name=resnet50", "parallel.tp=64", "model.batch_norm=sync"}},
           {4,
            {"model.name=resnet50", "parallel.zero=1", "batch.global=64", "batch.accumulate=4",
             "model.batch_norm=deferred"}},
           {5, {"model.name=vit_b_16", "parallel.sp=5"}},  // 12 heads: 3, 3, 2, 2, 2
           {2, {"parallel.comm=mpi", "parallel.zero=1"}},
           {2, {"parallel.comm=nccl", "run.device=cuda"}},
           {2, {"parallel.comm=local", "parallel.overlap=false", "parallel.bucket_mb=4"}},
           {2,
            {"parallel.compress=powersgd=4", "parallel.zero=1",
             "parallel.sequence=ulysses"}},  // but sp = 1
           {2, {"parallel.hang_s=0"}},
           {2, {"parallel.hang_s=1"}},
           {65536, {}}})
    EXPECT_EQ(refusal(row.world, row.sets), "(accepted)") << join(row.sets, " ");
}

struct Wrong {
  int world;
  Sets sets;
  std::vector<std::string> says;
};

const std::vector<Wrong>& wrong() {
  static const std::string vit = "model.name=vit_b_16", swin = "model.name=swin_t",
                           resnet = "model.name=resnet50";
  static const std::vector<Wrong> all = {
      // Launches that do not make the mesh.
      {8,
       {vit, "parallel.dp=4", "parallel.tp=4"},
       {"dp x tp x pp = 4 x 4 x 1 = 16 but 8 ranks were started"}},
      {1, {"parallel.dp=2"}, {"dp x tp x pp = 2 x 1 x 1 = 2 but 1 rank was started"}},
      {1,
       {"parallel.tp=3"},
       {"tp x pp = 3 x 1 = 3 does not divide the number of ranks: 1 rank was started"}},
      {8, {"parallel.tp=3"}, {"tp x pp = 3 x 1 = 3", "8 ranks were started"}},
      {0,
       {vit, "run.np=2", "parallel.pp=3"},
       {"run.np = 2", "choose run.np = 3, 6 or another multiple of 3, or parallel.pp = 1 or 2"}},
      {2,
       {vit, "parallel.pp=2", "parallel.stages=6,6"},
       {"parallel.stages: expected a list of numbers, found \"6,6\"", "write [6,6]"}},
      {8, {vit, "parallel.sp=3"}, {"tp x pp x sp = 1 x 1 x 3 = 3", "8 ranks were started"}},
      {8,
       {vit, "parallel.dp=1", "parallel.sp=3", "parallel.tp=2"},
       {"dp x tp x pp x sp = 1 x 2 x 1 x 3 = 6 but 8 ranks"}},
      {2, {"parallel.dp=3"}, {"= 3 but 2 ranks were started"}},
      {2, {"parallel.dp=1"}, {"dp x tp x pp = 1 x 1 x 1 = 1 but 2 ranks were started"}},
      {4, {"run.np=2"}, {"run.np = 2 but 4 ranks were started"}},
      {1, {"run.np=2"}, {"run.np = 2 but 1 rank was started"}},
      {0, {"run.np=8", "parallel.dp=3"}, {"dp x tp x pp = 3 x 1 x 1 = 3 but run.np = 8"}},
      {0, {"run.np=8", "parallel.tp=3"}, {"tp x pp = 3 x 1 = 3", "run.np = 8"}},
      {0,
       {"parallel.dp=65536", "parallel.tp=3"},
       {"dp x tp x pp = 65536 x 3 x 1 = 196608 ranks are out of range", "at most 65536"}},
      {0,
       {vit, "parallel.dp=65536", "parallel.tp=65536", "parallel.sp=65536"},
       {"ranks are out of range"}},
      {0, {"run.np=0"}, {"run.np = 0 is out of range"}},
      {0, {"run.np=-4"}, {"run.np = -4 is out of range"}},
      {0, {"run.np=65537"}, {"run.np = 65537 is out of range"}},
      {0, {"run.np=two"}, {"run.np: expected a whole number, found \"two\""}},
      {4, {"parallel.dp=0"}, {"parallel.dp = 0 is out of range"}},
      {4, {"parallel.tp=0"}, {"parallel.tp = 0 is out of range"}},
      {4, {"parallel.pp=0"}, {"parallel.pp = 0 is out of range"}},
      {4, {"parallel.sp=-1"}, {"parallel.sp = -1 is out of range"}},
      {4, {"parallel.tp=1.5"}, {"parallel.tp: expected a whole number, found 1.5"}},
      // Tensor parallelism that the model does not allow.
      {5,
       {vit, "parallel.tp=5"},
       {"parallel.tp = 5 does not divide model.heads = 12", "choose 1, 2, 3, 4, 6 or 12"}},
      {5, {vit, "parallel.tp=5"}, {"parallel.tp = 5 does not divide model.mlp = 3072"}},
      {2, {"parallel.tp=2"}, {"parallel.tp = 2 does not divide model.heads = 3", "choose 1 or 3"}},
      {4,
       {vit, "model.mlp=1023", "parallel.tp=4"},
       {"parallel.tp = 4 does not divide model.mlp = 1023", "choose 1 or 3"}},
      {24, {vit, "parallel.tp=24"}, {"parallel.tp = 24 does not divide model.heads = 12"}},
      {2,
       {swin, "parallel.tp=2"},
       {"parallel.tp = 2 does not divide model.heads = [3, 6, 12, 24]: stage 1 has 3 heads",
        "choose 1 or 3"}},
      {12,
       {swin, "model.heads=[12,6,12,24]", "parallel.tp=12"},
       {"parallel.tp = 12", "stage 2 has 6 heads"}},
      {3,
       {swin, "model.mlp_ratio=0.34", "parallel.tp=3"},
       {"parallel.tp = 3 does not divide the hidden width 32 of the MLPs of stage 1"}},
      {3,
       {resnet, "parallel.tp=3"},
       {"parallel.tp = 3 does not divide model.width = 64: layer1.0.conv1 has 64 output channels"}},
      {128, {resnet, "parallel.tp=128"}, {"parallel.tp = 128 does not divide model.width = 64"}},
      {16,
       {resnet, "model.width=24", "parallel.tp=16"},
       {"model.width = 24: layer1.0.conv1 has 24", "choose 1, 2, 3, 4, 6, 8, 12 or 24"}},
      // Sequence parallelism.
      {2, {swin, "parallel.sp=2"}, {"parallel.sp = 2: a swin", "sequence parallelism is for vit"}},
      {2, {resnet, "parallel.sp=2"}, {"parallel.sp = 2: a resnet", "leave it at 1"}},
      {2,
       {resnet, "parallel.tp=2", "parallel.sequence=megatron"},
       {"parallel.sequence = \"megatron\": a resnet"}},
      {2,
       {vit, "parallel.sequence=megatron"},
       {"parallel.sequence = \"megatron\"", "but parallel.tp = 1"}},
      {4,
       {vit, "parallel.sp=2", "parallel.tp=2", "parallel.sequence=megatron"},
       {"parallel.sp = 2 needs parallel.sequence = \"ulysses\""}},
      {13,
       {vit, "parallel.sp=13"},
       {"parallel.sp = 13 is more than model.heads = 12", "choose at most 12"}},
      {32,
       {vit, "parallel.tp=4", "parallel.sp=8"},
       {"parallel.sp = 8 is more than model.heads / parallel.tp = 12 / 4 = 3"}},
      {4, {"parallel.sequence=ring"}, {"parallel.sequence = \"ring\" is not known"}},
      // ZeRO.
      {4, {"parallel.zero=4"}, {"parallel.zero = 4 is out of range", "choose 0 to 3"}},
      {4, {"parallel.zero=-1"}, {"parallel.zero = -1 is out of range"}},
      {4, {"parallel.persist=-1"}, {"parallel.persist = -1 is out of range"}},
      {4, {"parallel.persist=1e5"}, {"parallel.persist: expected a whole number", "write 100000"}},
      // Gradient compression.
      {2,
       {"parallel.compress=int9"},
       {"parallel.compress = \"int9\" is not known",
        "choose none, fp16, bf16, int8, onebit, topk=FRACTION or powersgd=RANK"}},
      {2,
       {"parallel.wire=bf16", "parallel.all_reduce=mpi"},
       {"parallel.wire = \"bf16\" is for what travels round a ring", "choose parallel.all_reduce"}},
      {2,
       {"parallel.wire=fp16", "parallel.comm=local"},
       {"parallel.wire = \"fp16\" is for what travels round a ring"}},
      {2, {"parallel.wire=f8"}, {"parallel.wire", "fp16"}},
      {2, {"parallel.compress=fp16=2"}, {"parallel.compress = \"fp16=2\" is not known"}},
      {2,
       {"parallel.compress=topk"},
       {"parallel.compress = \"topk\": topk takes the share", "for example topk=0.01"}},
      {2, {"parallel.compress=topk=0"}, {"topk takes the share", "more than 0 and at most 1"}},
      {2, {"parallel.compress=topk=1.5"}, {"topk takes the share"}},
      {2, {"parallel.compress=topk=nan"}, {"topk takes the share"}},
      {2, {"parallel.compress=topk=1%"}, {"topk takes the share"}},
      {2,
       {"parallel.compress=powersgd"},
       {"parallel.compress = \"powersgd\": powersgd takes a rank", "for example powersgd=4"}},
      {2, {"parallel.compress=powersgd=0"}, {"powersgd takes a rank"}},
      {2, {"parallel.compress=powersgd=2.5"}, {"powersgd takes a rank", "1 to 1024"}},
      {2,
       {"parallel.compress=int8", "parallel.zero=3"},
       {"parallel.compress = \"int8\" is for sums over dp ranks", "choose parallel.zero up to 2"}},
      {4,
       {vit, "parallel.compress=powersgd=2", "parallel.zero=1", "parallel.sp=2"},
       {"powersgd=2\" is for whole matrices", "choose parallel.zero = 0"}},
      {4,
       {vit, "parallel.compress=powersgd=2", "parallel.zero=2", "parallel.tp=2",
        "parallel.sequence=megatron"},
       {"powersgd=2\" is for whole matrices, which sequence-parallel ranks with parallel.zero = 2 "
        "never have"}},
      // Patience.
      {2,
       {"parallel.hang_s=0.001"},
       {"parallel.hang_s = 0.001 is out of range", "choose at least 1 second, or 0"}},
      // This build does not have these.
      {3,
       {"parallel.weights=[2,1]"},
       {"parallel.weights has 2 numbers, but there are 3 data-parallel ranks"}},
      {2, {"parallel.weights=[0,0]"}, {"parallel.weights gives nobody a sample"}},
      {2,
       {"parallel.weights=[2,1]", "model.name=resnet18_cifar"},
       {"statistics of a rank's own samples would depend on how many it gets",
        "choose model.batch_norm = \"sync\""}},
      {2,
       {"parallel.comm=nccl"},
       {"parallel.comm = \"nccl\" is for messages between cards", "choose run.device = cuda"}},
      {2,
       {"parallel.comm=gloo"},
       {"parallel.comm = \"gloo\" is not known", "choose auto, local, mpi or nccl"}},
      {2,
       {resnet, "parallel.weights=[2,1]", "model.batch_norm=deferred"},
       {"parallel.weights with model.batch_norm = \"deferred\"",
        "choose model.batch_norm = \"sync\""}},
      // Batches.
      {4,
       {"batch.global=64", "batch.micro=32", "batch.accumulate=1"},
       {"32 x 1 x 4 = 128 but batch.global = 64", "micro = 16"}},
      {4, {"batch.micro=32"}, {"batch.micro = 32 alone does not say how large an update is"}},
      {4,
       {"batch.global=3", "batch.accumulate=4"},
       {"batch.accumulate = 4 is more than batch.global = 3"}},
      {2,
       {"batch.global=1024", "batch.micro=1"},
       {"batch.micro = 1 cuts batch.global = 1024 into 512 micro-batches"}},
      {4,
       {"batch.micro=1000000", "batch.accumulate=200"},
       {"1000000 x 200 x 4 = 800000000 is out of range"}},
      {4, {"batch.global=0"}, {"batch.global = 0 is out of range"}},
  };
  return all;
}

TEST(Layout, WrongOnesAreRefusedClearly) {
  EXPECT_GE(wrong().size(), 40u);
  for (const Wrong& row : wrong()) {
    const std::string message = refusal(row.world, row.sets);
    for (const std::string& part : row.says)
      EXPECT_NE(message.find(part), message.npos)
          << row.world << " ranks, " << join(row.sets, " ") << "\n"
          << message << "\nlacks: " << part;
  }
}

TEST(Layout, AllAtOnceAsTheContractShows) {
  EXPECT_EQ("error: " +
                refusal(8, {},
                        "[model]\nname = \"vit_b_16\"\nmlp  = 30\n[parallel]\ndp          = 4\ntp  "
                        "        = 5\n") +
                "\n",
            R"(error: t.toml:6:15: parallel.tp = 5 does not divide model.heads = 12
    6 | tp          = 5
      |               ^ choose 1, 2, 3 or 6
   also: dp x tp x pp = 4 x 5 x 1 = 20 but 8 ranks were started
   help: `tessera config check t.toml` re-checks without running
)");
}

TEST(Layout, UnsoundModelsAndRefusedAxesSayNothingTwice) {
  const std::string message =
      refusal(2, {"model.name=swin_t", "model.heads=[3,6]", "parallel.tp=2"});
  EXPECT_NE(message.find("one number for each stage"), message.npos) << message;
  EXPECT_EQ(message.find("parallel.tp"), message.npos) << message;
  EXPECT_EQ(refusal(4, {"parallel.dp=x"}).find("also:"), std::string::npos);
}

}  // namespace
}  // namespace tessera::config::layout_test
