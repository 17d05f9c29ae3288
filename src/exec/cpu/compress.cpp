// Compressed reductions. Each rank encodes the parts of its tensor, each part goes to the rank that
// adds it up (in f32 or f64, in the order of ranks), and where all get everything the sums come
// back encoded once more. topk: everybody gets the lists of everybody. Convention: with a residual,
// what an encoding lost is subtracted where it was lost: by the sender, and by whoever encoded a
// sum.
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "comm/compress.h"
#include "exec/cpu/group.h"
#include "exec/cpu/reference/instantiate.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

int64_t lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }
comm::Bytes span(std::byte* data, int64_t bytes) { return {data, static_cast<std::size_t>(bytes)}; }

// Bytes of every rank's part, and where it begins.
struct Parts {
  std::vector<int64_t> elements, bytes, first, at;  // first: element, at: byte
  int64_t all_bytes = 0;
  Parts(const ir::Compressed& a, ir::Wire wire) : elements(a.parts) {
    int64_t begin = 0;
    for (const int64_t n : elements) {
      first.push_back(begin);
      at.push_back(all_bytes);
      bytes.push_back(ir::wire_bytes(wire, n));
      begin += n;
      all_bytes += bytes.back();
    }
  }
};

static_assert(chunk % ir::wire_block == 0, "a chunk is whole blocks");
template <class T>
void encode(const Call& call, ir::Wire wire, const T* x, int64_t n, std::byte* out) {
  for_chunks(call.pool, n, chunk, [&](int64_t begin, int64_t size) {
    comm::encode(wire, x + begin, size, out + ir::wire_bytes(wire, begin));
  });
}
template <class T>
void decode(const Call& call, ir::Wire wire, const std::byte* in, int64_t n, T* y, comm::Into how) {
  for_chunks(call.pool, n, chunk, [&](int64_t begin, int64_t size) {
    comm::decode(wire, in + ir::wire_bytes(wire, begin), size, y + begin, how);
  });
}
template <class T>
void add(const Call& call, const T* a, const T* b, int64_t n, T* y) {
  for_chunks(call.pool, n, chunk, [&](int64_t begin, int64_t size) {
    for (int64_t i = begin; i < begin + size; ++i) y[i] = a[i] + b[i];
  });
}

template <class T>
void reduce_all(const Call& call, const ir::Compressed& a, ir::Wire wire) {
  const Parts parts(a, wire);
  const auto me = static_cast<std::size_t>(a.index);
  const int64_t mine = parts.elements[me], ranks = static_cast<int64_t>(parts.elements.size());
  std::byte *sent = call.shared, *received = sent + lines(parts.all_bytes);
  const T* x = call.in[0].as<T>();
  T* left = ir::has_residual(wire) ? call.out[1].as<T>() : nullptr;
  if (left) {
    add(call, x, call.in[1].as<T>(), call.in[0].elements(), left);
    x = left;
  }
  for (std::size_t r = 0; r < parts.elements.size(); ++r) {
    encode(call, wire, x + parts.first[r], parts.elements[r], sent + parts.at[r]);
    if (left)
      decode(call, wire, sent + parts.at[r], parts.elements[r], left + parts.first[r],
             comm::Into::subtract);
  }
  const std::vector<int64_t> from_each(parts.elements.size(), parts.bytes[me]);
  group_of(call).all_to_all(span(sent, parts.all_bytes), parts.bytes,
                            span(received, ranks * parts.bytes[me]), from_each);

  T* sum = call.out[0].as<T>() + (a.dim < 0 ? parts.first[me] : 0);
  for (int64_t r = 0; r < ranks; ++r)
    decode(call, wire, received + r * parts.bytes[me], mine, sum,
           r == 0 ? comm::Into::set : comm::Into::add);
  if (a.dim >= 0) return;
  encode(call, wire, sum, mine, sent + parts.at[me]);
  if (left) {
    T* own = left + parts.first[me];
    add(call, own, sum, mine, own);
    decode(call, wire, sent + parts.at[me], mine, own, comm::Into::subtract);
  }
  group_of(call).all_gather(span(sent + parts.at[me], parts.bytes[me]), span(sent, parts.all_bytes),
                            parts.bytes);
  for (std::size_t r = 0; r < parts.elements.size(); ++r)
    decode(call, wire, sent + parts.at[r], parts.elements[r], call.out[0].as<T>() + parts.first[r],
           comm::Into::set);
}

template <class T>
void reduce_top(const Call& call, const ir::Compressed& a) {
  const int64_t n = call.in[0].elements(), count = ir::top_count(a.keep, n),
                bytes = ir::top_bytes(count, call.in[0].dtype);
  CHECK(n < int64_t{1} << 32, "indices of topk have 32 bits");
  const auto me = static_cast<std::size_t>(a.index);
  std::byte *list = call.shared, *lists = list + lines(bytes);
  std::byte* scratch = lists + lines(bytes * static_cast<int64_t>(a.parts.size()));
  T* left = call.out[1].as<T>();
  add(call, call.in[0].as<T>(), call.in[1].as<T>(), n, left);
  comm::take_top(left, n, count, list, reinterpret_cast<T*>(scratch));
  const std::vector<int64_t> counts(a.parts.size(), bytes);
  group_of(call).all_gather(span(list, bytes),
                            span(lists, bytes * static_cast<int64_t>(a.parts.size())), counts);
  const int64_t begin =
      a.dim < 0 ? 0 : std::accumulate(a.parts.begin(), a.parts.begin() + a.index, int64_t{0});
  const int64_t size = a.dim < 0 ? n : a.parts[me];
  T* sum = call.out[0].as<T>();
  std::fill_n(sum, size, T{0});
  for (std::size_t r = 0; r < a.parts.size(); ++r)
    comm::add_top(lists + bytes * static_cast<int64_t>(r), count, begin, size, sum);
}

template <class T>
void compressed_reduce(const Call& call) {
  const ir::Compressed& a = call.attr<ir::Compressed>();
  const ir::Wire wire = *ir::parse_wire(a.wire);
  const bool read = call.out[0] && (!ir::has_residual(wire) || call.out[1]);
  CHECK(read || call.in[0].elements() == 0,
        "a compressed reduction has a reader for what it gives and what it leaves");
  CHECK(static_cast<std::size_t>(group_of(call).size()) == a.parts.size(),
        "a compressed reduction has a part for every rank of its axis");
  wire == ir::Wire::topk ? reduce_top<T>(call, a) : reduce_all<T>(call, a, wire);
}

}  // namespace

Scratch scratch_compressed_reduce(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                  std::span<const ir::Type>) {
  const ir::Compressed& a = std::get<ir::Compressed>(attrs);
  const ir::Wire wire = *ir::parse_wire(a.wire);
  const auto ranks = static_cast<int64_t>(a.parts.size());
  if (wire == ir::Wire::topk) {
    const int64_t bytes = ir::top_bytes(ir::top_count(a.keep, in[0].elements()), in[0].dtype);
    return {static_cast<std::size_t>(lines(bytes) + lines(bytes * ranks) + lines(in[0].bytes())),
            0};
  }
  const Parts parts(a, wire);
  return {
      static_cast<std::size_t>(lines(parts.all_bytes) +
                               lines(ranks * parts.bytes.at(static_cast<std::size_t>(a.index)))),
      0};
}

template <class T>
void reference_compressed_reduce(const Call& call) {
  compressed_reduce<T>(call);
}
void fast_compressed_reduce(const Call& call) { compressed_reduce<float>(call); }
REFERENCE(compressed_reduce)

}  // namespace tessera::exec::cpu
