// attention and attention_grad: of tokens that lie behind each other, or in windows of an image.
// Windows are cut into scratch, attended to as any other tokens, and put back. Programs for CPUs
// have them cut beforehand, which is fewer copies (docs/decisions.md).
#include "base/check.h"
#include "exec/common/window_copies.h"
#include "exec/cpu/attention/tokens.h"

namespace tessera::exec::cpu {
namespace {

constexpr std::int64_t line = 64;  // bytes that copies begin at multiples of

Scratch scratch_of_windows(const ir::Attrs& attrs, std::span<const ir::Type> in, bool gradient) {
  const auto& attr = std::get<ir::Attention>(attrs);
  std::vector<ir::Type> as_called(in.begin(), in.end());
  for (ir::Type& type : as_called)
    if (type.dtype == ir::DType::f16) type.dtype = ir::DType::f32;  // widened around the call
  const TypesInWindows types(attr, as_called, gradient, line);
  const ir::Attrs dense = without_windows(attr);
  Scratch need = (gradient ? grad_scratch_of_tokens : scratch_of_tokens)(dense, types.in).aligned();
  need.shared += static_cast<std::size_t>(types.bytes);
  return need;
}

void move_windows(const Call& call, ir::Op op, const Tensor& from, const Tensor& to) {
  const auto& attr = call.attr<ir::Attention>();
  const bool cuts = op == ir::Op::window;
  const ir::Attrs attrs =
      ir::Window{attr.window, attr.shift, cuts ? ir::Shape{} : ir::Shape{to.shape[1], to.shape[2]}};
  (cuts ? fast_window : fast_unwindow)({.op = op,
                                        .attrs = attrs,
                                        .in = {&from, 1},
                                        .out = {&to, 1},
                                        .pool = call.pool,
                                        .scratch = {}});
}

void attend_windows(const Call& call, bool gradient) {
  const auto& attr = call.attr<ir::Attention>();
  const WindowCopies copies(attr, call.in, call.out, gradient, call.shared, line);
  const ir::Attrs dense = without_windows(attr);
  const auto used = static_cast<std::size_t>(copies.room - call.shared);
  CHECK(used <= call.scratch.shared, "attention in windows: scratch too small");
  for (const auto& [image, windows] : copies.cut)
    move_windows(call, ir::Op::window, image, windows);
  (gradient ? attend_tokens_grad
            : attend_tokens)({.op = call.op,
                              .attrs = dense,
                              .in = copies.in,
                              .out = copies.out,
                              .pool = call.pool,
                              .scratch = {call.scratch.shared - used, call.scratch.per_thread},
                              .shared = copies.room,
                              .own = call.own,
                              .threading = call.threading});
  for (const auto& [image, windows] : copies.put_back)
    move_windows(call, ir::Op::unwindow, windows, image);
}

}  // namespace

void fast_attention(const Call& call) {
  in_windows(call.attrs) ? attend_windows(call, false) : attend_tokens(call);
}
Scratch scratch_attention(const ir::Attrs& attrs, std::span<const ir::Type> in,
                          std::span<const ir::Type>) {
  return in_windows(attrs) ? scratch_of_windows(attrs, in, false) : scratch_of_tokens(attrs, in);
}

void fast_attention_grad(const Call& call) {
  in_windows(call.attrs) ? attend_windows(call, true) : attend_tokens_grad(call);
}
Scratch scratch_attention_grad(const ir::Attrs& attrs, std::span<const ir::Type> in,
                               std::span<const ir::Type>) {
  return in_windows(attrs) ? scratch_of_windows(attrs, in, true)
                           : grad_scratch_of_tokens(attrs, in);
}

}  // namespace tessera::exec::cpu
