// The table of contents of the compiler: every transform is a free function Program -> Program, run
// by one runner. Convention: passes contain only the rewrite; naming, timing, verifying, dumping
// and disabling belong to run().
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "ir/program.h"
#include "transforms/schedules.h"

namespace tessera::transforms {

using ir::Program;

struct Pass {
  std::string name;
  std::function<Program(const Program&)> fn;
  bool preserves_numerics = true;  // bit for bit, in every element type; false: rounding may change
  bool required = false;  // the program is not what was asked for without it: it cannot be disabled
};

struct RunOptions {
  std::set<std::string> disabled;  // names of passes to leave out
  std::string dump_dir;            // writes NN_<pass>.ir after each pass
  std::function<void(const Pass&, const Program&)> before =
      {};  // is shown each pass with the program that it gets
};
struct PassReport {
  std::string name;
  double ms = 0;
  std::size_t eqns_before = 0, eqns_after = 0;
  bool disabled = false, preserves_numerics = true;
};
// Runs the passes in order and verifies after each. An error says "failed after PASS: ..." with the
// equation.
Program run(Program program, const std::vector<Pass>& passes, const RunOptions& options = {},
            std::vector<PassReport>* reports = nullptr);

// Gradients of the output `loss` for every float parameter, as further equations and outputs
// "grad.<parameter>". In f16 small gradients would vanish: the loss is differentiated `scaled` by
// the input "loss_scale", or by a number, by which gradients are divided again at once. Gradients
// scaled by the input stay so until optimizer() packs them.
enum class Seed : std::uint8_t { one, input, number };
inline constexpr double seed_number = 1024;
Program autodiff(const Program& program, Seed scaled = Seed::one);

// One step over several micro-batches: parts share parameters and scalars, batch inputs become
// "images.1", ..., outputs are added up, except those that update an input: one micro-batch hands
// them to the next; logits stay apart as "logits.M". With `apart` gradients stay apart as
// "grad#M.<parameter>", of one role: the optimizer adds them up after they were reduced (ZeRO 2).
Program accumulate(const std::vector<Program>& parts, bool apart = false);

// Deferred batch norm: running statistics are moved once per step, by the sums of all micro-batches
// and groups.
Program defer(const Program& program);

// Contractions, attention and activations in `low` (bf16 or f16); parameters, statistics, losses
// and parameter gradients stay f32.
Program precision(const Program& program, ir::DType low);

// Inference with quantised layers: a product or conv with one of these parameters (as it is, or
// cast) reads both factors as `to`, by scales that are state: one of the parameter, per output
// channel or for all of it, and one of what it is multiplied with. The result keeps its type. After
// precision().
struct Quantisation {
  std::set<std::string> params;
  ir::DType to = ir::DType::i8;
  bool per_channel = true;
};
Program quantise(const Program& program, const Quantisation& what);
std::string weight_scale_name(const std::string& param);
std::string input_scale_name(const std::string& param);

// Flat buckets: each holds the parameters of one group side by side, every tensor at a multiple of
// 64 bytes.
struct Bucket {
  struct Entry {
    std::string param;
    std::int64_t offset = 0;
    ir::Shape shape;
    int dim = -1;  // that is cut into the bucket's parts
  };
  std::string name;  // "decay", "no_decay"; with several learning rates "decay.0", ...; then ".tp"
                     // and ".blockN"
  std::vector<Entry> entries;
  std::int64_t size = 0;   // of one part
  std::int64_t parts = 1;  // more than one: the bucket is [parts, size]
  bool decay = true;
  double lr_scale = 1.0;
  bool resident = false;  // ZeRO 3 leaves its weights whole
  int stage = -1;         // of a pipeline: whose weights these are; -1: there is none
  ir::Shape shape() const { return parts > 1 ? ir::Shape{parts, size} : ir::Shape{size}; }
};
// How a parameter is treated: those of one group share a bucket.
struct Group {
  bool decay = true;
  double lr_scale = 1.0;  // of the learning rate (layer-wise decay)
  int stage = -1;         // of a pipeline
  int block = -1;  // the layer, or the block of layers, whose gradients (weights) travel together;
                   // -1: all of them
  bool resident = false;  // ZeRO 3: too small to be worth sharding
  auto operator<=>(const Group&) const = default;
};
// The dims that ranks of a tensor axis share among them: heads, mlp, hidden.
const std::vector<std::string>& tensor_dims();
// Parameters with such a dim lie in buckets of `tp` parts.
std::vector<Bucket> plan_buckets(const Program& program,
                                 const std::function<Group(const std::string& param)>& group_of,
                                 int tp = 1);
// Parameters become views of bucket inputs: of the weights, or of their moving average.
Program buckets(const Program& program, const std::vector<Bucket>& buckets,
                ir::Role set = ir::Role::weights);
// The name of a bucket's buffer in a run: "weights.decay", "ema.decay". Names are for people and
// files; programs ask for the role. Moments are called by their optimizer.
std::string buffer_name(ir::Role role, const Bucket& bucket);

struct Optimizer {
  std::string name = "adamw";  // a row of ir/optimizers.h
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, momentum = 0.9, weight_decay = 0.0;
  bool nesterov = false;
  double clip = 0.0;  // largest global gradient norm; 0: no clipping
  double ema = 0.0;   // decay of a moving average of the weights; 0: none is kept
  // Without clipping: whether a step counts is known from each rank's own gradients, before they
  // are added up, and buckets are updated in the order in which they arrive; so an early bucket is
  // updated while a late one is under way.
  bool early = false;
};
// Packs gradients into buckets and updates weights and state in place; adds inputs lr and step,
// outputs grad_norm and ok. A step whose loss or gradient is not finite changes nothing. Gradients
// of a scaled loss are multiplied by the input "unscale" before anything else reads them; then the
// output "sound" says whether the loss was finite.
Program optimizer(const Program& program, const Optimizer& spec,
                  const std::vector<Bucket>& buckets);

// The inputs lr, step and rng become state and what follows from it: "step" counts applied updates,
// and the update that is tried is the next one. Its rate is looked up in "rates", those of updates
// "first_rate" and on, since whoever starts a step may not know yet whether the one before it was
// applied; the key of its random numbers is made of it, "seed" and "position". The inputs
// loss_scale and unscale become state too, which follows `rule`; outputs "scale" (of this step) and
// "overflow" (the step was skipped, and the scale answers it).
inline constexpr std::int64_t rates_ahead = 2;
Program count(const Program& program, const ir::LossScale& rule = {});

// Recomputes what the backward pass reads instead of keeping it; every n-th mark "residual" is kept
// (1: all of them, 0: no recomputation), and what a stage gets from the one before.
Program remat(const Program& program, int every);

// Evaluation: conv, batch norm by running statistics, a residual sum and relu become one conv.
Program fold_norm(const Program& program);

// contract + bias (+ gelu) in one op; add + layer norm, and its gradient; batch norm, a residual
// sum and relu, and their gradients; in mixed precision the casts and sums around them; the
// gradients of q, k and v as one tensor; log softmax + nll; scale, select and update.
Program fuse_contract(const Program& program);
// Before the others: attention cuts windows out of an image itself, for equations that the executor
// `takes` so; it is shown the attributes that they would have, and q as it is.
using CutsWindows = std::function<bool(const ir::Attention&, const ir::Type& q)>;
Program fuse_windows(const Program& program, const CutsWindows& takes);
Program fuse_norm(const Program& program);
Program fuse_batch_norm(const Program& program);
Program fuse_low(const Program& program);
// Quantised inference: a norm, or a product with an activation, gives the bytes that alone are read
// of it.
Program fuse_bytes(const Program& program);
// Products of the blocks in eight bits, with scales of past steps. `train`: the largest numbers of
// this step are added to these. Error(usage) where there is nothing for it.
Program fp8(const Program& program, bool train);
Program fuse_attention(const Program& program);
Program fuse_loss(const Program& program);
Program fuse_update(const Program& program);

// Without fusion: attention whose lse nobody reads as contract, scale, bias and mask, softmax,
// contract.
Program split_attention(const Program& program);

// How ranks are arranged; the mesh is pp, dp, sp, tp, the last fastest, without the axes of one
// rank.
struct Layout {
  int dp = 1, sp = 1, tp = 1;
  int pp = 1;
  int zero = 0;
  bool megatron_sequence = false;
  std::vector<double> shares{};   // of a batch per dp rank; empty: equal
  std::int64_t most_samples = 0;  // of a batch of any plan that shares buffers with this one
  ir::Mesh mesh() const;
  ir::Mesh mesh_of_stage() const;  // the ranks of one stage
};
// Writes down where inputs live and what marks ask for, then place() gives every value its place
// and adds the collectives.
Program strategy(const Program& program, const Layout& layout);
Program place(const Program& program);
// Gradient buckets that are summed over dp are sent in fewer bytes; what is lost is kept
// ("residual.<bucket>") and added to the next.
struct Compression {
  std::string kind = "none";  // fp16 | bf16 | int8 | topk | onebit | powersgd
  double keep = 0.0;          // topk: the share of the elements
  std::int64_t rank = 0;      // powersgd
  bool always = false;        // powersgd: also matrices that take more so (tests)
};
Program compress(const Program& program, const Compression& spec,
                 const std::vector<Bucket>& buckets);
// Small all_reduces of one axis that are ready together become one; what gradient buckets need is
// done as soon as they are complete.
Program combine(const Program& program);
Program hoist_reductions(const Program& program);
// ZeRO 3: every gather of weights stands where the one before it stood, so that it is under way
// while that one's layer computes; copies of weights that rest away stand one layer before that.
Program prefetch(const Program& program);

// The optimizer's state rests away from the device, on the host or in a file; `piece`: the most
// bytes of a buffer that come and go at a time. The plan cuts the updates accordingly
// (plan/offload.h).
Program offload(const Program& program, ir::Home home, std::int64_t piece);
// The weights that ZeRO 3 cuts rest away, too. rest_weights: says so, before place(), which writes
// a copy to the device wherever they are used. bring_updates: copies around updates that cannot be
// done in pieces.
Program rest_weights(const Program& program, ir::Home home, std::int64_t piece);
Program bring_updates(const Program& program);

// Pipelines. cut: equations of a forward program learn their stage; `blocks` of a stage: how many
// marks "residual" it closes, the first one (after the embedding) not counted. pipeline: the order
// of a schedule; every value on its stage's ranks only, and what crosses over to another stage sent
// there. `stage_of` says where persistent inputs live (-1: everywhere).
Program cut(const Program& program, const std::vector<std::int64_t>& blocks);
Program pipeline(const Program& program, const Schedule& schedule,
                 const std::function<int(const ir::Input&)>& stage_of);

// Dead code, equal equations of one phase, and identities (x*1, reshape of reshape, cast to the
// same type, ...).
Program simplify(const Program& program);

}  // namespace tessera::transforms
