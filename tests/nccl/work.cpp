#include "nccl/work.h"

#include <cstring>
#include <stdexcept>

#include "base/half.h"

namespace tessera::test {
namespace {

float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float out = 0;
  std::memcpy(&out, &wide, sizeof(out));
  return out;
}
std::uint16_t to_bf16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  if (value != value) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class T>
void sum_of(const std::byte* all, std::byte* out, std::size_t bytes, int ranks) {
  const std::size_t n = bytes / sizeof(T);
  for (std::size_t i = 0; i < n; ++i) {
    T total{};
    for (int r = 0; r < ranks; ++r) {
      T one{};
      std::memcpy(&one, all + static_cast<std::size_t>(r) * bytes + i * sizeof(T), sizeof(T));
      total = static_cast<T>(total + one);
    }
    std::memcpy(out + i * sizeof(T), &total, sizeof(T));
  }
}

// Numbers of 16 bits: bf16 or f16, as the two conversions say.
void sum_of_short(const std::byte* all, std::byte* out, std::size_t bytes, int ranks,
                  float (*from)(std::uint16_t), std::uint16_t (*to)(float)) {
  for (std::size_t i = 0; i < bytes; i += 2) {
    float total = 0;
    for (int r = 0; r < ranks; ++r) {
      std::uint16_t one = 0;
      std::memcpy(&one, all + static_cast<std::size_t>(r) * bytes + i, 2);
      total += from(one);
    }
    const std::uint16_t bits = to(total);
    std::memcpy(out + i, &bits, 2);
  }
}

// In the order of the ranks.
void sum_up(ncclDataType_t type, const std::byte* all, std::byte* out, std::size_t bytes,
            int ranks) {
  switch (type) {
    case ncclFloat64:
      return sum_of<double>(all, out, bytes, ranks);
    case ncclFloat32:
      return sum_of<float>(all, out, bytes, ranks);
    case ncclBfloat16:
      return sum_of_short(all, out, bytes, ranks, from_bf16, to_bf16);
    case ncclFloat16:
      return sum_of_short(all, out, bytes, ranks, from_half, to_half);
    case ncclInt64:
      return sum_of<std::int64_t>(all, out, bytes, ranks);
    case ncclInt32:
      return sum_of<std::int32_t>(all, out, bytes, ranks);
    case ncclUint8:
      return sum_of<std::uint8_t>(all, out, bytes, ranks);
    default:
      throw std::logic_error("no such sum in the test library");
  }
}

bool carry_out_one(NcclOp& op, Exchange& exchange, int ranks, int rank) {
  const std::size_t n = op.bytes;
  std::vector<Exchange::Part> sends, receives;
  std::vector<std::byte> all;  // the parts of a sum
  const bool root = op.peer == rank;
  const auto part = [&](int r) { return all.data() + static_cast<std::size_t>(r) * n; };
  const auto to_others = [&](const auto& data_for) {
    for (int r = 0; r < ranks; ++r)
      if (r != rank) sends.push_back({r, data_for(r), n});
  };
  const auto from_others = [&](const auto& place_of) {
    for (int r = 0; r < ranks; ++r)
      if (r != rank) receives.push_back({r, place_of(r), n});
  };
  const bool sums = op.kind == Kind::all_reduce || op.kind == Kind::reduce_scatter ||
                    (op.kind == Kind::reduce && root);
  const auto own = static_cast<std::size_t>(rank) * n;
  if (sums) {
    all.resize(static_cast<std::size_t>(ranks) * n);
    std::memcpy(part(rank), op.staged + (op.kind == Kind::reduce_scatter ? own : 0), n);
    from_others(part);
  }
  switch (op.kind) {
    case Kind::all_reduce:
      to_others([&](int) { return op.staged; });
      break;
    case Kind::reduce_scatter:
      to_others([&](int r) { return op.staged + static_cast<std::size_t>(r) * n; });
      break;
    case Kind::all_gather:
      std::memcpy(op.made + own, op.staged, n);
      to_others([&](int) { return op.staged; });
      from_others([&](int r) { return op.made + static_cast<std::size_t>(r) * n; });
      break;
    case Kind::broadcast:
      if (root) {
        std::memcpy(op.made, op.staged, n);
        to_others([&](int) { return op.staged; });
      } else {
        receives.push_back({op.peer, op.made, n});
      }
      break;
    case Kind::reduce:
      if (!root) sends.push_back({op.peer, op.staged, n});
      break;
    default:
      throw std::logic_error("messages between two ranks go all at once");
  }
  if (!exchange.run(std::move(sends), std::move(receives))) return false;
  if (sums) sum_up(op.type, all.data(), op.made, n, ranks);
  return true;
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat64:
    case ncclInt64:
      return 8;
    case ncclFloat32:
    case ncclInt32:
      return 4;
    case ncclBfloat16:
    case ncclFloat16:
      return 2;
    case ncclUint8:
    case ncclInt8:
      return 1;
    default:
      return 0;
  }
}

std::size_t bytes_in(const NcclOp& op, int ranks, int rank) {
  if (op.kind == Kind::recv || (op.kind == Kind::broadcast && op.peer != rank)) return 0;
  return op.kind == Kind::reduce_scatter ? op.bytes * static_cast<std::size_t>(ranks) : op.bytes;
}

std::size_t bytes_out(const NcclOp& op, int ranks, int rank) {
  if (op.kind == Kind::send || (op.kind == Kind::reduce && op.peer != rank)) return 0;
  return op.kind == Kind::all_gather ? op.bytes * static_cast<std::size_t>(ranks) : op.bytes;
}

bool carry_out(std::vector<NcclOp>& ops, Exchange& exchange, int ranks, int rank) {
  std::vector<Exchange::Part> sends, receives;
  for (NcclOp& op : ops) {
    if (op.kind == Kind::send)
      sends.push_back({op.peer, op.staged, op.bytes});
    else if (op.kind == Kind::recv)
      receives.push_back({op.peer, op.made, op.bytes});
    else if (!carry_out_one(op, exchange, ranks, rank))
      return false;
  }
  return exchange.run(std::move(sends), std::move(receives));
}

}  // namespace tessera::test
