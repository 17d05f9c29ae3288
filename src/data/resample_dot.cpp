#include "data/resample_dot.h"

#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

namespace tessera::data::dot {
namespace {

constexpr std::uint32_t half = 1 << 21;

template <int reach>
uint8x16_t look_up(const std::uint8_t* bytes, uint8x16_t from) {
  return reach == 16 ? vqtbl1q_u8(vld1q_u8(bytes), from)
                     : vqtbl2q_u8({{vld1q_u8(bytes), vld1q_u8(bytes + 16)}}, from);
}

// Up to four taps: each digit's sum begins with what is carried from the one below.
template <int reach>
void across_one(const std::uint8_t* const (&src)[rows], const Lookup* lookup,
                const std::int32_t* at, std::size_t groups, std::int32_t* dst, std::size_t line) {
  for (std::size_t g = 0; g < groups; g += 2, lookup += 2, at += 2, dst += 8) {
    uint8x16_t pixels[2][rows];
    uint32x4_t sum[2][rows];
    const auto each = [&](auto&& body) {
      for (int i = 0; i < 2; ++i)
        for (int r = 0; r < rows; ++r) body(i, r);
    };
    const auto weight = [&](int i, int place) { return vld1q_u8(lookup[i].digit[place]); };
    each([&](int i, int r) {
      pixels[i][r] = look_up<reach>(src[r] + at[i], vld1q_u8(lookup[i].from));
    });
    each([&](int i, int r) {
      sum[i][r] = vdotq_u32(vdupq_n_u32(half), pixels[i][r], weight(i, 0));
    });
    each([&](int i, int r) {
      sum[i][r] = vdotq_u32(vshrq_n_u32(sum[i][r], 8), pixels[i][r], weight(i, 1));
    });
    each([&](int i, int r) {
      sum[i][r] = vdotq_u32(vshrq_n_u32(sum[i][r], 8), pixels[i][r], weight(i, 2));
    });
    each([&](int i, int r) {
      vst1q_s32(dst + r * line + 4 * i, vreinterpretq_s32_u32(vshrq_n_u32(sum[i][r], 6)));
    });
  }
}

// Any number of taps: one sum per digit.
template <int reach>
void across_many(const std::uint8_t* const (&src)[rows], const Lookup* lookup,
                 const std::int32_t* at, int quads, std::size_t groups, std::int32_t* dst,
                 std::size_t line) {
  for (std::size_t g = 0; g < groups; ++g, dst += 4) {
    uint32x4_t low[rows], middle[rows], high[rows];
    for (int r = 0; r < rows; ++r) {
      low[r] = vdupq_n_u32(half);
      middle[r] = high[r] = vdupq_n_u32(0);
    }
    for (int q = 0; q < quads; ++q, ++lookup, ++at) {
      const uint8x16_t from = vld1q_u8(lookup->from), w0 = vld1q_u8(lookup->digit[0]),
                       w1 = vld1q_u8(lookup->digit[1]), w2 = vld1q_u8(lookup->digit[2]);
      for (int r = 0; r < rows; ++r) {
        const uint8x16_t pixels = look_up<reach>(src[r] + *at, from);
        low[r] = vdotq_u32(low[r], pixels, w0);
        middle[r] = vdotq_u32(middle[r], pixels, w1);
        high[r] = vdotq_u32(high[r], pixels, w2);
      }
    }
    for (int r = 0; r < rows; ++r) {
      const uint32x4_t carried = vsraq_n_u32(high[r], vsraq_n_u32(middle[r], low[r], 8), 8);
      vst1q_s32(dst + r * line, vreinterpretq_s32_u32(vshrq_n_u32(carried, 6)));
    }
  }
}

}  // namespace

bool available() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }

void across(const std::uint8_t* const* src, const Lookup* lookups, const std::int32_t* at,
            int quads, int reach, std::size_t groups, std::int32_t* dst, std::size_t line) {
  const std::uint8_t* const own[rows] = {src[0], src[1], src[2], src[3]};
  if (quads == 1)
    reach == 16 ? across_one<16>(own, lookups, at, groups, dst, line)
                : across_one<32>(own, lookups, at, groups, dst, line);
  else
    reach == 16 ? across_many<16>(own, lookups, at, quads, groups, dst, line)
                : across_many<32>(own, lookups, at, quads, groups, dst, line);
}

}  // namespace tessera::data::dot
