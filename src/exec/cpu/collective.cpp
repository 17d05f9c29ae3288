// The collectives: bytes are put side by side by rank, handed to the axis's group, and put back in
// order. Works on any element type; f32 and f64 programs use the same code. Convention: a dim that
// is the outermost one needs no putting in order, and no scratch.
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "exec/common/index.h"
#include "exec/cpu/group.h"
#include "exec/cpu/reference/instantiate.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

std::vector<int64_t> counts_of(const ir::Shape& parts, int64_t bytes_each) {
  std::vector<int64_t> out;
  for (const int64_t part : parts) out.push_back(part * bytes_each);
  return out;
}
int64_t total(const ir::Shape& parts) {
  return std::accumulate(parts.begin(), parts.end(), int64_t{0});
}

// [outer, sum of parts, inner] <-> the parts one after another, each [outer, part, inner].
void by_parts(std::byte* whole, std::byte* split, const Around& a, const ir::Shape& parts,
              bool gather) {
  const int64_t row = total(parts) * a.inner;
  int64_t begin = 0;
  for (const int64_t part : parts) {
    const int64_t bytes = part * a.inner;
    for (int64_t o = 0; o < a.outer && bytes > 0; ++o, split += bytes) {
      std::byte* at = whole + o * row + begin;
      std::memcpy(gather ? at : split, gather ? split : at, static_cast<std::size_t>(bytes));
    }
    begin += bytes;
  }
}

std::span<std::byte> bytes(const Tensor& t) {
  return {t.data, static_cast<std::size_t>(t.elements() * ir::size_of(t.dtype))};
}
std::span<std::byte> bytes(std::byte* data, const Tensor& like) {
  return {data, bytes(like).size()};
}

comm::Pending start_all_reduce(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  if (x.data != y.data && x.elements() > 0) std::memcpy(y.data, x.data, bytes(x).size());
  return group_of(call).start_all_reduce(bytes(y), y.dtype);
}
void all_reduce(const Call& call) { start_all_reduce(call)->wait(); }

void all_gather(const Call& call) {
  const ir::Collective& a = call.attr<ir::Collective>();
  const Tensor &x = call.in[0], &y = call.out[0];
  const Around around(y.shape, a.dim, ir::size_of(y.dtype));
  const auto counts = counts_of(a.parts, around.outer * around.inner);
  std::byte* to = around.outer > 1 ? call.shared : y.data;
  group_of(call).all_gather(bytes(x), bytes(to, y), counts);
  if (to != y.data) by_parts(y.data, to, around, a.parts, true);
}

void reduce_scatter(const Call& call) {
  const ir::Collective& a = call.attr<ir::Collective>();
  const Tensor &x = call.in[0], &y = call.out[0];
  const Around around(x.shape, a.dim, ir::size_of(x.dtype));
  const auto counts = counts_of(a.parts, around.outer * around.inner);
  std::byte* from = x.data;
  if (around.outer > 1) by_parts(x.data, from = call.shared, around, a.parts, false);
  group_of(call).reduce_scatter(bytes(from, x), bytes(y), counts, x.dtype);
}

// Rank r receives its part along `dim`; what comes from rank r is its part along `from`.
void all_to_all(const Call& call) {
  const ir::Collective& a = call.attr<ir::Collective>();
  const Tensor &x = call.in[0], &y = call.out[0];
  const Around leaving(x.shape, a.dim, ir::size_of(x.dtype)),
      arriving(y.shape, a.from, ir::size_of(y.dtype));
  const auto send = counts_of(a.parts, leaving.outer * leaving.inner),
             receive = counts_of(a.from_parts, arriving.outer * arriving.inner);
  std::byte *out = x.data, *in = y.data, *scratch = call.shared;
  if (leaving.outer > 1) by_parts(x.data, out = scratch, leaving, a.parts, false);
  if (arriving.outer > 1) in = scratch + (bytes(x).size() + 63) / 64 * 64;
  group_of(call).all_to_all(bytes(out, x), send, bytes(in, y), receive);
  if (in != y.data) by_parts(y.data, in, arriving, a.from_parts, true);
}

// Parts that lie together need no scratch on either side.
comm::Pending start_flat(const Call& call) {
  const ir::Collective& a = call.attr<ir::Collective>();
  const Tensor &x = call.in[0], &y = call.out[0];
  const bool gather = call.op == ir::Op::all_gather;
  const Around around(gather ? y.shape : x.shape, a.dim, ir::size_of(x.dtype));
  CHECK(around.outer == 1, "a message that must be put in order cannot be under way");
  const auto counts = counts_of(a.parts, around.inner);
  return gather ? group_of(call).start_all_gather(bytes(x), bytes(y), counts)
                : group_of(call).start_reduce_scatter(bytes(x), bytes(y), counts, x.dtype);
}

// Messages between two stages keep the order in which they were handed over: one tag serves all.
comm::Pending start_send(const Call& call) {
  return group_of(call).start_send(bytes(call.in[0]), call.attr<ir::Message>().to, 0);
}
comm::Pending start_recv(const Call& call) {
  return group_of(call).start_recv(bytes(call.out[0]), call.attr<ir::Message>().from, 0);
}

std::size_t size(const ir::Type& type) {
  return static_cast<std::size_t>((type.bytes() + 63) / 64 * 64);
}
bool scattered(const ir::Type& type, int dim) {
  return Around(type.shape, dim, ir::size_of(type.dtype)).outer > 1;
}
void resolved() {
  CHECK(false, "own, once, widen and transfer are resolved when a program is made local");
}

}  // namespace

comm::Pending start_collective(const Call& call) {
  if (call.op == ir::Op::send) return start_send(call);
  if (call.op == ir::Op::recv) return start_recv(call);
  return call.op == ir::Op::all_reduce ? start_all_reduce(call) : start_flat(call);
}

Scratch scratch_all_gather(const ir::Attrs& attrs, std::span<const ir::Type>,
                           std::span<const ir::Type> out) {
  return {scattered(out[0], std::get<ir::Collective>(attrs).dim) ? size(out[0]) : 0, 0};
}
Scratch scratch_reduce_scatter(const ir::Attrs& attrs, std::span<const ir::Type> in,
                               std::span<const ir::Type>) {
  return {scattered(in[0], std::get<ir::Collective>(attrs).dim) ? size(in[0]) : 0, 0};
}
Scratch scratch_all_to_all(const ir::Attrs&, std::span<const ir::Type> in,
                           std::span<const ir::Type> out) {
  return {size(in[0]) + size(out[0]), 0};
}

#define COLLECTIVE(op, body)                 \
  template <class T>                         \
  void reference_##op(const Call& call) {    \
    body;                                    \
  }                                          \
  void fast_##op(const Call& call) { body; } \
  REFERENCE(op)
COLLECTIVE(all_reduce, all_reduce(call))
COLLECTIVE(all_gather, all_gather(call))
COLLECTIVE(reduce_scatter, reduce_scatter(call))
COLLECTIVE(all_to_all, all_to_all(call))
COLLECTIVE(own, (void)call; resolved())
COLLECTIVE(once, (void)call; resolved())
COLLECTIVE(widen, (void)call; resolved())
COLLECTIVE(transfer, (void)call; resolved())
COLLECTIVE(send, start_send(call)->wait())
COLLECTIVE(recv, start_recv(call)->wait())
#undef COLLECTIVE

}  // namespace tessera::exec::cpu
