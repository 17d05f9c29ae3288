// Attention in windows of an image for types and sizes that no fast kernel has: windows are cut
// into the workspace, attended to by the plain kernels, and put back.
#include "base/check.h"
#include "exec/common/window_copies.h"
#include "exec/cuda/attention/attention.h"

namespace tessera::exec::cuda {

namespace {

constexpr std::int64_t alignment = 256;

void move_windows(const Call& call, ir::Op op, const Tensor& from, const Tensor& to) {
  const auto& attr = call.attr<ir::Attention>();
  const bool cuts = op == ir::Op::window;
  const ir::Attrs attrs =
      ir::Window{attr.window, attr.shift, cuts ? ir::Shape{} : ir::Shape{to.shape[1], to.shape[2]}};
  (cuts ? run_window : run_unwindow)({.op = op,
                                      .attrs = attrs,
                                      .in = {&from, 1},
                                      .out = {&to, 1},
                                      .stream = call.stream,
                                      .context = call.context});
}

}  // namespace

std::int64_t window_copies_bytes(const ir::Attention& attr, std::span<const ir::Type> in,
                                 bool gradient) {
  return TypesInWindows(attr, in, gradient, alignment).bytes;
}

void attend_copies(const Call& call, bool gradient) {
  const auto& attr = call.attr<ir::Attention>();
  const WindowCopies copies(attr, call.in, call.out, gradient, call.workspace, alignment);
  const std::int64_t used = copies.room - call.workspace;
  CHECK(used <= call.workspace_bytes,
        "attention in windows: no workspace for copies; q, k, v and o begin at multiples of 16 "
        "bytes where a plan says where they lie");
  for (const auto& [image, windows] : copies.cut)
    move_windows(call, ir::Op::window, image, windows);
  const ir::Attrs dense = without_windows(attr);
  (gradient ? plain_attention_grad
            : plain_attention)({.op = call.op,
                                .attrs = dense,
                                .in = copies.in,
                                .out = copies.out,
                                .stream = call.stream,
                                .workspace = copies.room,
                                .workspace_bytes = call.workspace_bytes - used,
                                .context = call.context});
  for (const auto& [image, windows] : copies.put_back)
    move_windows(call, ir::Op::unwindow, windows, image);
}

}  // namespace tessera::exec::cuda
