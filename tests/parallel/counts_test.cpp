// Each technique sends what the textbook says: counts and bytes per step of rank 0, by formula.
// Then, over many layouts, that nothing silly is sent: no value gathered twice in one phase,
// gathered to be cut, or summed in full where a part would do. Convention: nothing runs; bytes are
// what a rank hands over (a gather: its part; a reduction: the whole).
#include <gtest/gtest.h>

#include <set>

#include "compile/pipeline.h"
#include "parallel/world.h"
#include "plan/traffic.h"
#include "transforms/uses.h"

namespace tessera::test::counts_test {
namespace {

using ir::Op;
using ir::Phase;

run::Compiled compiled(const config::Config& config) {
  const plan::Target none;
  return run::compile(config, run::Goal::train,
                      run::micro_batches(config.batch.global, config.batch.accumulate), none);
}

// The rows of a step, each taken out as it is asserted: what is left at the end was not expected.
class Sent {
 public:
  explicit Sent(const config::Config& config) : Sent(plan::communication(compiled(config).plan)) {}
  explicit Sent(std::vector<plan::CommRow> rows) : rows_(std::move(rows)) {}
  ~Sent() {
    for (const plan::CommRow& row : rows_)
      ADD_FAILURE() << "also sent: " << plan::name(row.phase) << " " << ir::name(row.op) << " over "
                    << row.axis << " of " << row.what << ": " << row.count << " times, "
                    << row.bytes << " bytes";
  }
  void is(Phase phase, Op op, const std::string& axis, const std::string& what, std::int64_t count,
          std::int64_t bytes) {
    for (auto row = rows_.begin(); row != rows_.end(); ++row)
      if (row->phase == phase && row->op == op && row->axis == axis && row->what == what) {
        EXPECT_EQ(row->count, count) << plan::name(phase) << " " << ir::name(op) << " of " << what;
        EXPECT_EQ(row->bytes, bytes) << plan::name(phase) << " " << ir::name(op) << " of " << what;
        rows_.erase(row);
        return;
      }
    ADD_FAILURE() << "not sent: " << plan::name(phase) << " " << ir::name(op) << " of " << what;
  }

 private:
  std::vector<plan::CommRow> rows_;
};

// Bytes of buckets: whole, or the part of the first of n ranks.
struct Buckets {
  std::int64_t count = 0, whole = 0, part = 0;
};
Buckets buckets_of(const config::Config& config, int n,
                   const std::function<bool(const transforms::Bucket&)>& which = {}) {
  Buckets out;
  for (const transforms::Bucket& b : run::model_buckets(config))
    if (!which || which(b)) {
      ++out.count;
      out.whole += b.size * 4;
      out.part += ir::split(b.size, n, 0).size * 4;
    }
  return out;
}

constexpr std::int64_t depth = 3, batch = 8, tokens = 7, dim = 24,
                       word = 4;  // of the ViT of world.cpp, three blocks deep
// Behind the last attention there is the class token alone.
constexpr std::int64_t class_bytes = batch * dim * word;

config::Config vit(const std::string& layout) {
  config::Config c = tiny("vit", "f32");
  c.model.depth = depth;
  return with_layout(c, layout);
}

TEST(Counts, DataParallel) {
  const config::Config c = vit("dp4");
  const Buckets b = buckets_of(c, 4);
  EXPECT_EQ(b.count, 2);
  Sent sent(c);
  sent.is(Phase::update, Op::all_reduce, "dp", "gradients", b.count, b.whole);
  sent.is(Phase::update, Op::all_reduce, "dp", "scalars", 1, 2 * word);  // loss, correct
}

TEST(Counts, Zero1And2) {
  for (const char* layout : {"dp2 zero1", "dp4 zero1", "dp3 zero2", "dp8 zero2"}) {
    SCOPED_TRACE(layout);
    const config::Config c = vit(layout);
    const Buckets b = buckets_of(c, static_cast<int>(c.parallel.dp));
    EXPECT_EQ(
        b.count,
        c.parallel.zero == 1
            ? 2
            : depth +
                  3);  // 2: a bucket per block, embeddings and head, and one that does not decay
    Sent sent(c);
    sent.is(Phase::update, Op::reduce_scatter, "dp", "gradients", b.count, b.whole);
    sent.is(Phase::update, Op::all_gather, "dp", "weights", b.count, b.part);
    sent.is(Phase::update, Op::all_reduce, "dp", "scalars", 1,
            3 * word);  // loss, correct, sum of squares
  }
}

// Under accumulation stage 2 sends each micro-batch's gradients, stage 1 their sum.
TEST(Counts, ZeroUnderAccumulation) {
  for (const char* layout : {"dp2 zero1 acc2", "dp2 zero2 acc2"}) {
    SCOPED_TRACE(layout);
    const config::Config c = vit(layout);
    const Buckets b = buckets_of(c, 2);
    const std::int64_t times = c.parallel.zero;
    Sent sent(c);
    sent.is(Phase::update, Op::reduce_scatter, "dp", "gradients", times * b.count, times * b.whole);
    sent.is(Phase::update, Op::all_gather, "dp", "weights", b.count, b.part);
    sent.is(Phase::update, Op::all_reduce, "dp", "scalars", 1, 3 * word);
  }
}

// Whether the backward pass reads a bucket of ZeRO 3: images have no gradient, so it does without
// the embeddings, and sums have one that needs no operand, so it does without biases where a bucket
// holds nothing else (the head's, and those that tp cuts).
bool read_again(const transforms::Bucket& b) {
  const bool head = b.name.ends_with("block" + std::to_string(depth + 1));
  return !b.name.ends_with("block0") && (b.decay || (!head && b.parts == 1));
}

// Every block's weights are gathered for the forward pass and again for the backward pass. Nothing
// is gathered after the update.
TEST(Counts, Zero3) {
  for (const char* layout : {"dp2 zero3", "dp4 zero3"}) {
    SCOPED_TRACE(layout);
    config::Config c = vit(layout);
    c.parallel.persist = 0;
    const int n = static_cast<int>(c.parallel.dp);
    const Buckets all = buckets_of(c, n), again = buckets_of(c, n, read_again);
    EXPECT_EQ(
        all.count,
        2 * (depth +
             2));  // what decays and what does not, of the embeddings, every block and the head
    Sent sent(c);
    sent.is(Phase::forward, Op::all_gather, "dp", "weights", all.count, all.part);
    sent.is(Phase::backward, Op::all_gather, "dp", "weights", again.count, again.part);
    sent.is(Phase::update, Op::reduce_scatter, "dp", "gradients", all.count, all.whole);
    sent.is(Phase::update, Op::all_reduce, "dp", "scalars", 1, 3 * word);
  }
}

TEST(Counts, TensorParallel) {
  for (const char* layout : {"tp2", "tp4"}) {
    SCOPED_TRACE(layout);
    Sent sent(vit(layout));
    const std::int64_t activation = batch * tokens * dim * word;
    sent.is(Phase::forward, Op::all_reduce, "tp", "activations", 2 * depth,
            (2 * depth - 2) * activation + 2 * class_bytes);
    sent.is(Phase::backward, Op::all_reduce, "tp", "activations", 2 * depth,
            (2 * depth - 1) * activation + class_bytes);
    sent.is(Phase::update, Op::all_reduce, "tp", "scalars", 1, word);  // sum of squares
  }
}

// Korthikanti et al.: each all_reduce becomes a reduce_scatter and an all_gather; the gathered
// inputs of the products are not kept for the backward pass but gathered again. The class token is
// added up where it leaves the sequence, behind the last attention; from there on every rank has it
// whole, so that products need no gather and their sums are added up. What every rank has whole
// (norms, biases, embeddings) gets its gradient from all tokens.
TEST(Counts, MegatronSequence) {
  const config::Config c = vit("tp2 megatron");
  const std::int64_t whole = batch * tokens * dim * word, part = batch * 4 * dim * word;
  const Buckets shared = buckets_of(c, 1, [](const transforms::Bucket& b) { return b.parts == 1; });
  Sent sent(c);
  sent.is(Phase::forward, Op::all_gather, "tp", "activations", 2 * depth - 1,
          (2 * depth - 1) * part);
  sent.is(Phase::forward, Op::reduce_scatter, "tp", "activations", 2 * depth - 2,
          (2 * depth - 2) * whole);
  sent.is(Phase::forward, Op::all_reduce, "tp", "activations", 2, 2 * class_bytes);
  sent.is(Phase::backward, Op::all_gather, "tp", "activations", 4 * depth - 3,
          (4 * depth - 3) * part);
  sent.is(Phase::backward, Op::reduce_scatter, "tp", "activations", 2 * depth - 1,
          (2 * depth - 1) * whole);
  sent.is(Phase::backward, Op::all_reduce, "tp", "activations", 1, class_bytes);
  sent.is(Phase::update, Op::all_reduce, "tp", "gradients", shared.count, shared.whole);
  sent.is(Phase::update, Op::all_reduce, "tp", "scalars", 1, word);
}

// q, k and v travel together; the tokens of the first rank are 4 of 7, its heads 2 of 4.
TEST(Counts, UlyssesSequence) {
  const config::Config c = vit("sp2");
  const std::int64_t by_tokens = batch * 4 * dim * word, by_heads = batch * tokens * dim / 2 * word;
  const Buckets b = buckets_of(c, 1);
  Sent sent(c);
  sent.is(Phase::forward, Op::all_to_all, "sp", "activations", 2 * depth,
          depth * (3 * by_tokens + by_heads));
  sent.is(Phase::forward, Op::all_reduce, "sp", "activations", 1, class_bytes);
  sent.is(Phase::backward, Op::all_reduce, "sp", "activations", 1, class_bytes);
  sent.is(Phase::backward, Op::all_to_all, "sp", "activations", 2 * depth,
          depth * (by_tokens + 3 * by_heads));
  sent.is(Phase::update, Op::all_reduce, "sp", "gradients", b.count, b.whole);
}

TEST(Counts, SynchronisedBatchNorm) {
  const config::Config c = with_layout(tiny("resnet", "f32"), "dp2");
  std::int64_t layers = 0, channels = 0;
  for (const models::Param& p : models::parameters(c.model))
    if (p.name.ends_with("running_mean")) {
      ++layers;
      channels += p.shape[0];
    }
  // The sums of the norms are their parameters' gradients: of what does not decay only the head's
  // bias is left to add up.
  const Buckets decay = buckets_of(c, 1, [](const transforms::Bucket& b) { return b.decay; });
  Sent sent(c);
  sent.is(Phase::forward, Op::all_reduce, "dp", "statistics", layers, 2 * channels * word);
  sent.is(Phase::backward, Op::all_reduce, "dp", "statistics", layers, 2 * channels * word);
  sent.is(Phase::update, Op::all_reduce, "dp", "gradients", 2,
          decay.whole + c.model.classes * word);
  sent.is(Phase::update, Op::all_reduce, "dp", "scalars", 1, 2 * word);
}

struct Norms {
  std::int64_t widths = 0, channels = 0;  // how many different ones, and of all layers together
};
Norms norms_of(const config::Config& c) {
  std::set<std::int64_t> widths;
  std::int64_t channels = 0;
  for (const models::Param& p : models::parameters(c.model))
    if (p.name.ends_with("running_mean")) {
      widths.insert(p.shape[0]);
      channels += p.shape[0];
    }
  return {static_cast<std::int64_t>(widths.size()), channels};
}

// Only the running statistics are everybody's; those of layers of one width travel together.
TEST(Counts, LocalBatchNorm) {
  config::Config c = with_layout(tiny("resnet", "f32"), "dp2");
  c.model.batch_norm = "local";
  const auto [widths, channels] = norms_of(c);
  const Buckets b = buckets_of(c, 1);
  Sent sent(c);
  sent.is(Phase::forward, Op::all_gather, "dp", "statistics", widths, 2 * channels * word);
  sent.is(Phase::update, Op::all_reduce, "dp", "gradients", b.count, b.whole);
  sent.is(Phase::update, Op::all_reduce, "dp", "scalars", 1, 2 * word);
}

// However many micro-batches there are, the running statistics of deferred norms are everybody's
// once per step.
TEST(Counts, DeferredBatchNorm) {
  for (const char* layout : {"dp2", "dp2 acc3"}) {
    config::Config c = with_layout(tiny("resnet", "f32"), layout);
    c.model.batch_norm = "deferred";
    const auto [widths, channels] = norms_of(c);
    const Buckets b = buckets_of(c, 1);
    Sent sent(c);
    sent.is(Phase::forward, Op::all_reduce, "dp", "statistics", widths, 2 * channels * word);
    sent.is(Phase::update, Op::all_reduce, "dp", "gradients", b.count, b.whole);
    sent.is(Phase::update, Op::all_reduce, "dp", "scalars", 1, 2 * word);
  }
}

// In bf16 what is added up over samples stays f32, loss and gradients alike.
TEST(Counts, DataParallelInBf16) {
  config::Config c = vit("dp2");
  c.precision.dtype = "bf16";
  const Buckets b = buckets_of(c, 2);
  Sent sent(c);
  sent.is(Phase::update, Op::all_reduce, "dp", "gradients", b.count, b.whole);
  sent.is(Phase::update, Op::all_reduce, "dp", "scalars", 1, 2 * word);
}

// A product of techniques sends what each of them sends, over its own axis.
TEST(Counts, Hybrid) {
  config::Config c = vit("dp2 tp2 zero3");
  c.parallel.persist = 0;
  const Buckets all = buckets_of(c, 2), again = buckets_of(c, 2, read_again);
  const std::int64_t activation = batch / 2 * tokens * dim * word;
  Sent sent(c);
  sent.is(Phase::forward, Op::all_gather, "dp", "weights", all.count, all.part);
  sent.is(Phase::forward, Op::all_reduce, "tp", "activations", 2 * depth,
          (2 * depth - 2) * activation + class_bytes);
  sent.is(Phase::backward, Op::all_gather, "dp", "weights", again.count, again.part);
  sent.is(Phase::backward, Op::all_reduce, "tp", "activations", 2 * depth,
          (2 * depth - 1) * activation + class_bytes / 2);
  sent.is(Phase::update, Op::reduce_scatter, "dp", "gradients", all.count, all.whole);
  sent.is(Phase::update, Op::all_reduce, "tp", "scalars", 1, word);
  sent.is(Phase::update, Op::all_reduce, "dp", "scalars", 1, 3 * word);
}

// A stage hands its activations on and gets their gradients back, once for each micro-batch
// whatever the schedule; numbers of all stages are added up once. Of all ranks together: what is
// sent arrives.
TEST(Counts, Pipelines) {
  for (const char* layout :
       {"pp2 acc4 gpipe", "pp2 acc4 1f1b", "pp2 acc4 zb", "pp3 acc2 1f1b", "pp4 acc8 1f1b",
        "pp4 acc8 zb", "pp2 acc4 interleaved2", "pp2 acc8 interleaved3"}) {
    SCOPED_TRACE(layout);
    config::Config c = tiny("vit", "f32");
    c.model.depth = 6;
    c = with_layout(c, layout);
    const std::int64_t ranks = c.parallel.pp, stages = ranks * c.parallel.chunks,
                       micros = c.batch.accumulate;
    const std::int64_t message = batch / micros * tokens * dim * word;
    const run::Compiled program = compiled(c);
    const plan::Target none;
    for (int rank = 0; rank < ranks; ++rank) {
      std::int64_t before = 0, after = 0;  // of its stages: those that get something from another,
                                           // and those that hand on
      for (std::int64_t s = rank; s < stages; s += ranks) {
        before += s > 0;
        after += s + 1 < stages;
      }
      Sent sent(plan::communication(plan::lower(program.program, rank, none)));
      if (after > 0)
        sent.is(Phase::forward, Op::send, "pp", "activations", micros * after,
                micros * after * message);
      if (before > 0)
        sent.is(Phase::forward, Op::recv, "pp", "activations", micros * before,
                micros * before * message);
      if (before > 0)
        sent.is(Phase::backward, Op::send, "pp", "activations", micros * before,
                micros * before * message);
      if (after > 0)
        sent.is(Phase::backward, Op::recv, "pp", "activations", micros * after,
                micros * after * message);
      sent.is(Phase::update, Op::all_reduce, "pp", "scalars", 1,
              3 * word);  // loss, correct, sum of squares
    }
  }
}

class Sense : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Sense, NothingSillyIsSent) {
  for (const char* dtype : {"f32", "bf16"}) {
    const run::Compiled c = compiled(with_layout(tiny(GetParam().first, dtype), GetParam().second));
    const ir::Program& p = c.program;
    const transforms::Uses uses(p);
    std::set<std::tuple<ir::Var, std::string, Phase>> moved;
    for (const ir::Eqn& e : p.eqns) {
      const auto* a = std::get_if<ir::Collective>(&e.attrs);
      if (!a || e.op == Op::own || e.op == Op::once || e.op == Op::widen) continue;
      const std::string said = dtype + std::string(": ") + ir::print(p, e);
      EXPECT_TRUE(moved.emplace(e.in[0], a->axis, e.phase).second)
          << "twice in one phase: " << said;
      bool only_cut = !uses.readers[static_cast<std::size_t>(e.out[0])].empty();
      for (const int reader : uses.readers[static_cast<std::size_t>(e.out[0])]) {
        const ir::Eqn& next = p.eqns[static_cast<std::size_t>(reader)];
        const auto* cut = std::get_if<ir::Collective>(&next.attrs);
        only_cut = only_cut && cut && next.op == Op::own && cut->axis == a->axis;
      }
      for (const ir::Output& o : p.outputs) only_cut = only_cut && o.var != e.out[0];
      EXPECT_FALSE(only_cut) << "whole only to be cut: " << said;
    }
  }
}

constexpr std::pair<const char*, const char*> layouts[] = {
    {"vit", "dp2"},
    {"vit", "dp3 zero1"},
    {"vit", "dp2 zero2"},
    {"vit", "dp4 zero3"},
    {"vit", "tp2"},
    {"vit", "tp2 megatron"},
    {"vit", "sp2"},
    {"vit", "sp4 zero3"},
    {"vit", "dp2 sp2 tp2"},
    {"vit", "sp2 tp2"},
    {"vit", "dp2 sp2 zero2"},
    {"vit", "dp2 sp2 tp2 zero3"},
    {"vit", "dp2 tp2 megatron zero3"},
    {"vit", "dp2 tp2 zero3 recompute"},
    {"swin", "dp2"},
    {"swin", "dp3 zero1"},
    {"swin", "tp2"},
    {"swin", "tp2 megatron"},
    {"swin", "dp2 tp2 zero3"},
    {"swin", "dp2 tp2 megatron zero2"},
    {"resnet", "dp2"},
    {"resnet", "dp3 zero2"},
    {"resnet", "tp2"},
    {"resnet", "dp2 tp4 zero3"},
    {"vit", "pp2 dp2 zero1 acc2"},
    {"swin", "pp2 tp2 acc2 zb"},
    {"resnet", "pp2 dp2 zero2 acc2"},
};
INSTANTIATE_TEST_SUITE_P(Layouts, Sense, testing::ValuesIn(layouts));

}  // namespace
}  // namespace tessera::test::counts_test
