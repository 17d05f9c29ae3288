// The attributes of ops: a small aggregate for each kind of op, and the variant that holds any of
// them. Convention: `fields` names each member once; printing, parsing and documentation follow
// from it, and a member at its default is not printed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/type.h"

namespace tessera::ir {

#define FIELDS(...)                               \
  template <class Self, class Visit>              \
  static void fields(Self& self, Visit&& visit) { \
    (void)self, (void)visit;                      \
    __VA_ARGS__;                                  \
  }
#define F(member) visit(#member, self.member)

struct None {
  bool operator==(const None&) const = default;
  FIELDS()
};
struct Sig {  // the dims of every operand and result, one letter each: "btc,c->btc"
  std::string sig;
  bool operator==(const Sig&) const = default;
  FIELDS(F(sig))
};
struct Contract {  // y = act(sum of x*w over the dims missing from the result + further operands)
  std::string sig;
  std::string act;  // "" | gelu | gelu_tanh: then the results are y and the value before act
  std::optional<DType> out;  // result dtype when it is not the operands'; quantised factors need it
  int scales = 0;            // operands after the factors by which their product is multiplied
  // The quantised type of y, whose scale is the last operand. The results are then y / scale, the
  // value before act in the type `out`, y / scale with its last dim in front, and the largest |y|.
  std::optional<DType> to = {};
  bool operator==(const Contract&) const = default;
  FIELDS(F(sig), F(act), F(out), F(scales), F(to))
};
// Operands x, scale [, g]: v = act(x), or g act'(x) where act is a gradient. Results, each by its
// letters: v / scale as elements of type `to` in the order of x's dims or another rotation of them;
// without letters the largest |v|; some of the last letters of x the sum of v over the others.
// "btc,->btc,cbt,"
struct Quantize {
  std::string sig;
  DType to = DType::f8e4m3;
  std::string act{};  // "" | gelu | gelu_tanh | gelu_grad | gelu_tanh_grad
  bool operator==(const Quantize&) const = default;
  FIELDS(F(sig), F(to), F(act))
};
struct DelayedScale {  // a scale for elements of type `to`, by the largest numbers of past steps
  DType to = DType::f8e4m3;
  double start = 1.0;  // where there were none
  // Each scale stands there so often: cuBLASLt wants that of a factor at a multiple of 16 bytes.
  static constexpr std::int64_t copies = 4;
  bool operator==(const DelayedScale&) const = default;
  FIELDS(F(to), F(start))
};
struct Sum {
  std::string sig;
  std::optional<DType> out;
  bool operator==(const Sum&) const = default;
  FIELDS(F(sig), F(out))
};
struct Conv {  // images [b,h,w,c], filters [k,l,c,o]; the gradients are told the size of what they
               // give: h x w images or k x l filters
  std::int64_t stride = 1, pad = 0;
  std::int64_t rows = 0, cols = 0;  // gradients only
  bool relu = false;                // forward only, after the addends
  std::optional<DType> out = {};    // of quantised images and filters: the result's dtype
  int scales = 0;                   // after the filters: operands that multiply the product
  bool operator==(const Conv&) const = default;
  FIELDS(F(stride), F(pad), F(rows), F(cols), F(relu), F(out), F(scales))
};
struct Pool {  // size x size windows over [b,h,w,c]; the border never wins
  std::int64_t size = 2, stride = 2, pad = 0;
  std::int64_t rows = 0, cols = 0;  // of the images; the gradient only
  bool operator==(const Pool&) const = default;
  FIELDS(F(size), F(stride), F(pad), F(rows), F(cols))
};
struct Attention {  // operands q k v [bias] [mask], and for the gradient q k v o lse do [bias]
                    // [mask]
  double scale = 1.0;
  bool bias = false, mask = false;
  bool packed = false;  // the gradient gives [.., t, 3, h, d] instead of dq, dk and dv
  // Tokens are those of an image, [.., i, j, h, d]: each attends to its window, as op window cuts
  // them. Empty: tokens lie behind each other, [.., t, h, d].
  Shape window{}, shift{};
  bool operator==(const Attention&) const = default;
  FIELDS(F(scale), F(bias), F(mask), F(packed), F(window), F(shift))
};
struct Scale {
  double factor = 1.0;
  bool operator==(const Scale&) const = default;
  FIELDS(F(factor))
};
struct Gelu {
  bool tanh = false;
  bool sums = false;  // of the gradient: a second result, its sum over all dims but the last
  bool operator==(const Gelu&) const = default;
  FIELDS(F(tanh), F(sums))
};
struct Cast {
  DType to = DType::f32;
  bool operator==(const Cast&) const = default;
  FIELDS(F(to))
};
struct Dropout {  // keyed by (seed, stream, step, global sample position, element in the sample)
  double rate = 0.0;
  bool per_sample = false;  // drop-path: one draw for a whole sample
  std::string stream;       // the scope that draws
  std::int64_t base = 0;    // position of this part's first sample in the global batch
  Shape whole{},
      start{};  // of a part of a sample: the dims of the whole one, and where the part begins
  bool operator==(const Dropout&) const = default;
  FIELDS(F(rate), F(per_sample), F(stream), F(base), F(whole), F(start))
};
struct Mark {  // an identity that names a place: sequence-parallel pin, remat boundary, pipeline
               // cut, debug name
  std::string label;
  int dim = -1;  // the dim that a strategy may shard here
  bool operator==(const Mark&) const = default;
  FIELDS(F(label), F(dim))
};
struct Norm {
  double eps = 1e-6;
  // The type of y when it is not that of x. Of the gradient: two more results, dx in this type and
  // the sum of dx over all dims but the last.
  std::optional<DType> to = {};
  bool operator==(const Norm&) const = default;
  FIELDS(F(eps), F(to))
};
// Statistics per channel (the last dim) over `groups` contiguous parts of the batch (dim 0): 1 for
// the whole batch, one per rank for local batch norm. `samples` x `pixels` values of each channel
// are behind the statistics of all groups together. `relu`: a ReLU follows; gradients are then
// given for its result.
struct BatchNorm {
  double eps = 1e-5, momentum = 0.1;
  std::int64_t groups = 1, samples = 0, pixels = 0;
  bool relu = false;
  bool operator==(const BatchNorm&) const = default;
  FIELDS(F(eps), F(momentum), F(groups), F(samples), F(pixels), F(relu))
};
struct Loss {
  double smoothing = 0.0;
  bool operator==(const Loss&) const = default;
  FIELDS(F(smoothing))
};
struct TopK {
  int k = 1;
  bool operator==(const TopK&) const = default;
  FIELDS(F(k))
};
struct Constant {
  double value = 0.0;
  DType dtype = DType::f32;
  Shape shape;
  bool operator==(const Constant&) const = default;
  FIELDS(F(value), F(dtype), F(shape))
};
struct Reshape {
  Shape shape;
  bool operator==(const Reshape&) const = default;
  FIELDS(F(shape))
};
struct Transpose {
  std::vector<int> perm;  // dim i of the result is dim perm[i] of the operand
  bool operator==(const Transpose&) const = default;
  FIELDS(F(perm))
};
struct Slice {
  int dim = 0;
  std::int64_t start = 0, size = 0;
  bool operator==(const Slice&) const = default;
  FIELDS(F(dim), F(start), F(size))
};
struct Dim {
  int dim = 0;
  bool operator==(const Dim&) const = default;
  FIELDS(F(dim))
};
struct Pad {  // zeros around one dim
  int dim = 0;
  std::int64_t before = 0, after = 0;
  bool operator==(const Pad&) const = default;
  FIELDS(F(dim), F(before), F(after))
};
struct Broadcast {  // "tc->btc" with the shape of the result
  std::string sig;
  Shape shape;
  bool operator==(const Broadcast&) const = default;
  FIELDS(F(sig), F(shape))
};
struct Patch {  // [b,h,w,c] <-> [b,t,p,p,c], t row by row
  std::int64_t size = 1;
  std::int64_t rows = 0;  // unpatchify only: patches per column of the image
  bool operator==(const Patch&) const = default;
  FIELDS(F(size), F(rows))
};
// A bucket of several parts is [parts, n]: row i holds part i of every tensor, cut along its own
// dim; so tensors that a model axis shards are contiguous for each of its ranks.
struct View {  // a tensor inside a flat bucket
  std::int64_t offset = 0;
  Shape shape;
  std::int64_t parts = 1;
  int dim = -1;  // that is cut into parts
  bool operator==(const View&) const = default;
  FIELDS(F(offset), F(shape), F(parts), F(dim))
};
struct Pack {  // tensors side by side in a flat bucket, each at its offset, zeros between
  std::vector<std::int64_t> offsets;
  std::int64_t size = 0, parts = 1;
  std::vector<int> dims{};  // per tensor; empty: the bucket is flat
  bool operator==(const Pack&) const = default;
  FIELDS(F(offsets), F(size), F(parts), F(dims))
};
struct Window {  // [b,h,w,c] <-> [b,n,t,c]: n windows of t = size[0] size[1] tokens, both row by
                 // row
  Shape size,
      shift;  // [rows, columns]: of a window, and of the roll before the cut (towards the top left)
  Shape image;  // unwindow only: [h,w] without the padding
  bool operator==(const Window&) const = default;
  FIELDS(F(size), F(shift), F(image))
};
struct WindowMask {  // [n,t,t] for an image [h,w]
  Shape size, shift, image;
  DType dtype = DType::f32;
  bool operator==(const WindowMask&) const = default;
  FIELDS(F(size), F(shift), F(image), F(dtype))
};
struct BiasTable {  // [(2 size[0] - 1) (2 size[1] - 1), h] <-> [h,t,t]
  Shape size;
  bool operator==(const BiasTable&) const = default;
  FIELDS(F(size))
};
struct Sgd {  // operands w momentum grad lr [factor] [ok]
  double momentum = 0.0, weight_decay = 0.0;
  bool nesterov = false, factor = false, ok = false;
  bool operator==(const Sgd&) const = default;
  FIELDS(F(momentum), F(weight_decay), F(nesterov), F(factor), F(ok))
};
struct AdamW {  // operands w m v grad lr step [factor] [ok]
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0;
  bool factor = false, ok = false;
  bool operator==(const AdamW&) const = default;
  FIELDS(F(beta1), F(beta2), F(eps), F(weight_decay), F(factor), F(ok))
};
struct Segments {  // the tensors inside a flat bucket
  std::vector<std::int64_t> offsets, sizes;
  bool operator==(const Segments&) const = default;
  FIELDS(F(offsets), F(sizes))
};
struct Ema {
  double decay = 0.999;
  bool operator==(const Ema&) const = default;
  FIELDS(F(decay))
};
// Attributes of ops that cross ranks or prepare it. In a program of global shapes `axis` and the
// dims say everything; in one rank's program `parts` are the extents of all ranks along `dim`
// (all_to_all: `from_parts` along `from`) and `index` is this rank's place in its group.
struct Collective {
  std::string axis;
  int dim = -1, from = -1;
  Shape parts{}, from_parts{};
  int index = 0;
  bool operator==(const Collective&) const = default;
  FIELDS(F(axis), F(dim), F(from), F(parts), F(from_parts), F(index))
};
// From one stage of a pipeline to another: indices on `axis`. What arrives says its type: nothing
// of it is there before.
struct Message {
  std::string axis;
  int from = 0, to = 0;
  DType dtype = DType::f32;  // recv only
  Shape shape{};
  bool operator==(const Message&) const = default;
  FIELDS(F(axis), F(from), F(to), F(dtype), F(shape))
};
// A reduction whose parts cross ranks encoded (ir/wire.h): P -> R, or with a dim P -> S. Operands x
// [residual], results sum [residual]. In one rank's program `parts` are the elements that each rank
// adds up.
struct Compressed {
  std::string axis, wire;
  double keep = 0.0;  // topk: the share of the elements that is sent
  int dim = -1;
  Shape parts{};
  int index = 0;
  bool operator==(const Compressed&) const = default;
  FIELDS(F(axis), F(wire), F(keep), F(dim), F(parts), F(index))
};
struct Stream {  // what random numbers are keyed by
  std::string stream;
  bool operator==(const Stream&) const = default;
  FIELDS(F(stream))
};
// (pixel / 255 - mean) / deviation; one number of each serves all channels. Both count as rounded
// to f32, and so does the result, whatever `to` is.
struct Normalise {
  std::vector<double> mean{}, deviation{};
  DType to = DType::f32;
  bool operator==(const Normalise&) const = default;
  FIELDS(F(mean), F(deviation), F(to))
};
// Pictures as `normalise` makes numbers of them, each moved, hidden in part and mixed with its
// partner as its row of draws says (base/picture_draw.h). Operands pictures draws [partners
// partners' draws].
struct Augment {
  std::vector<double> mean{}, deviation{};
  DType to = DType::f32;
  bool reflect = false;  // the padding holds the mirrored picture, not black
  bool operator==(const Augment&) const = default;
  FIELDS(F(mean), F(deviation), F(to), F(reflect))
};
// Pictures [n,h,w,c] resized to height x width, as Pillow and the loader do it
// (base/resample_taps.h); rows x columns of that from (top, left) on are kept.
struct Resize {
  std::int64_t height = 0, width = 0, top = 0, left = 0, rows = 0, columns = 0;
  bool cubic = false;
  bool operator==(const Resize&) const = default;
  FIELDS(F(height), F(width), F(top), F(left), F(rows), F(columns), F(cubic))
};
struct Clip {  // sum of squares -> norm and min(1, max / norm); max 0 never clips
  double max = 0.0;
  bool operator==(const Clip&) const = default;
  FIELDS(F(max))
};
// The factor on the loss in the backward pass: halved when a gradient overflows (after `hysteresis`
// - 1 that are tolerated), doubled after `window` good steps, between `least` and `most`.
struct LossScale {
  double first = 65536, least = 1, most = 16777216;
  std::int64_t window = 2000, hysteresis = 1;
  bool fixed = false;  // it stays as it is
  bool operator==(const LossScale&) const = default;
  FIELDS(F(first), F(least), F(most), F(window), F(hysteresis), F(fixed))
};
#undef F
#undef FIELDS

// Attributes of any kind. A class of its own, so that the code which copies, compares and destroys
// so many alternatives is compiled once (attrs.cpp) and not in every file that holds an equation.
struct Attrs
    : std::variant<None, Sig, Contract, Quantize, DelayedScale, Sum, Conv, Pool, Attention, Scale,
                   Gelu, Cast, Dropout, Mark, Norm, BatchNorm, Loss, TopK, Constant, Reshape,
                   Transpose, Slice, Dim, Pad, Broadcast, Patch, View, Pack, Window, WindowMask,
                   BiasTable, Sgd, AdamW, Segments, Ema, Clip, LossScale, Collective, Message,
                   Compressed, Stream, Normalise, Augment, Resize> {
  using variant::variant;
  Attrs();
  Attrs(const Attrs& other);
  Attrs(Attrs&& other) noexcept;
  Attrs& operator=(const Attrs& other);
  Attrs& operator=(Attrs&& other) noexcept;
  ~Attrs();
  bool operator==(const Attrs& other) const;
};
inline const std::string& axis_of(const Attrs& attrs) {  // of what moves()
  if (const Compressed* compressed = std::get_if<Compressed>(&attrs)) return compressed->axis;
  if (const Message* message = std::get_if<Message>(&attrs)) return message->axis;
  return std::get<Collective>(attrs).axis;
}
// Leads from place to place (docs/ir.md): its result's place is no consequence of its operand's.
inline bool moves(const Attrs& attrs) {
  return std::holds_alternative<Collective>(attrs) || std::holds_alternative<Message>(attrs) ||
         std::holds_alternative<Compressed>(attrs);
}

}  // namespace tessera::ir
