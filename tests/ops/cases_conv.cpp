#include "ops/families.h"

namespace tessera::test {

using namespace ir;
using enum Fill;

Rows conv_cases() {
  struct Sizes {
    std::int64_t b, h, w, c, o, k, l, stride, pad;
  };
  const auto out = [](std::int64_t extent, std::int64_t size, const Sizes& n) {
    return (extent + 2 * n.pad - size) / n.stride + 1;
  };
  Rows rows;
  // The convolution and both of its gradients for one geometry.
  const auto all = [&](const std::string& name, Sizes n, bool differentiate = true) {
    const Operand x{{n.b, n.h, n.w, n.c}}, f{{n.k, n.l, n.c, n.o}},
        g{{n.b, out(n.h, n.k, n), out(n.w, n.l, n), n.o}};
    rows.push_back({"conv_" + name,
                    Op::conv,
                    Conv{n.stride, n.pad, 0, 0},
                    {x, f},
                    sums,
                    differentiate ? std::vector<int>{0, 1} : std::vector<int>{}});
    rows.push_back({"conv_input_grad_" + name,
                    Op::conv_input_grad,
                    Conv{n.stride, n.pad, n.h, n.w},
                    {g, f},
                    sums});
    rows.push_back({"conv_filter_grad_" + name,
                    Op::conv_filter_grad,
                    Conv{n.stride, n.pad, n.k, n.l},
                    {g, x},
                    sums});
  };
  all("3x3", {2, 5, 6, 3, 4, 3, 3, 1, 1});
  all("3x3_stride", {2, 7, 6, 5, 3, 3, 3, 2, 1});
  all("3x3_even_stride", {1, 8, 8, 2, 3, 3, 3, 2, 1});
  all("1x1", {2, 4, 3, 5, 7, 1, 1, 1, 0});
  all("1x1_stride", {2, 5, 6, 4, 3, 1, 1, 2, 0});
  all("7x7_stem", {1, 15, 13, 3, 5, 7, 7, 2, 3});
  all("2x5", {2, 6, 7, 2, 3, 2, 5, 1, 0});
  all("5x3_stride_3", {2, 11, 10, 3, 2, 5, 3, 3, 2});
  all("one_pixel", {3, 1, 1, 4, 5, 3, 3, 1, 1});
  all("one_everything", {1, 1, 1, 1, 1, 1, 1, 1, 0});
  all("empty", {0, 5, 5, 3, 2, 3, 3, 1, 1}, false);
  all("wide", {4, 16, 16, 64, 40, 3, 3, 1, 1}, false);
  all("wide_stride", {4, 17, 16, 33, 65, 3, 3, 2, 1}, false);
  all("many_channels", {2, 4, 4, 700, 24, 3, 3, 1, 1}, false);
  all("stem_64", {2, 37, 264, 3, 64, 7, 7, 2, 3}, false);
  all("many_pixels", {3, 56, 56, 8, 16, 3, 3, 1, 1}, false);

  // With all that follows it in an evaluation.
  const auto folded = [&](const std::string& name, Sizes n, bool addend) {
    const Operand x{{n.b, n.h, n.w, n.c}}, f{{n.k, n.l, n.c, n.o}},
        y{{n.b, out(n.h, n.k, n), out(n.w, n.l, n), n.o}}, channel{{n.o}};
    Conv a{n.stride, n.pad};
    a.relu = addend;
    rows.push_back({"conv_folded_" + name, Op::conv, a, {x, f, channel, channel}, sums});
    if (addend) rows.back().in.push_back(y);
  };
  folded("scale", {2, 5, 6, 3, 4, 3, 3, 1, 1}, false);
  folded("1x1", {2, 5, 6, 40, 37, 1, 1, 1, 0}, true);
  folded("1x1_even", {2, 5, 6, 40, 64, 1, 1, 1, 0}, true);
  folded("1x1_scale", {2, 5, 6, 40, 64, 1, 1, 1, 0}, false);
  folded("stem", {2, 15, 13, 3, 5, 7, 7, 2, 3}, true);
  folded("stem_64", {3, 21, 40, 3, 64, 7, 7, 2, 3}, false);
  folded("two_blocks", {2, 9, 7, 48, 72, 3, 3, 2, 1}, true);
  folded("wide", {4, 16, 16, 64, 40, 3, 3, 1, 1}, true);

  const auto pool = [&](const std::string& name, Shape x, Pool a, Fill fill = normal) {
    rows.push_back({"max_pool_" + name,
                    Op::max_pool,
                    a,
                    {{x, fill}},
                    exact,
                    fill == normal ? std::vector<int>{0} : std::vector<int>{}});
    const Shape g = {x[0], (x[1] + 2 * a.pad - a.size) / a.stride + 1,
                     (x[2] + 2 * a.pad - a.size) / a.stride + 1, x[3]};
    a.rows = x[1];
    a.cols = x[2];
    // The pixels named by `ties` (0 to 2) lie in the first row of their windows, some of them
    // outside of the image.
    rows.push_back(
        {"max_pool_grad_" + name, Op::max_pool_grad, a, {{g}, {g, ties, DType::u8}}, rounding});
  };
  pool("2x2", {2, 6, 4, 3}, {2, 2, 0, 0, 0});
  pool("stem", {2, 9, 8, 5}, {3, 2, 1, 0, 0});
  pool("overlap", {1, 5, 7, 17}, {3, 1, 1, 0, 0});
  pool("wide", {2, 7, 9, 70}, {3, 2, 1, 0, 0});
  pool("wide_ties", {1, 7, 6, 70}, {3, 2, 1, 0, 0}, ties);
  pool("ties", {2, 9, 8, 5}, {3, 2, 1, 0, 0}, ties);
  pool("uncovered", {1, 7, 8, 2}, {2, 3, 0, 0, 0});
  return rows;
}

}  // namespace tessera::test
