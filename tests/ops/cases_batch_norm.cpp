// The derivative for x goes through the sums, so batch_norm alone is differentiated for gain and
// bias; batch_norm_test.cpp does the rest.
#include "ops/families.h"

namespace tessera::test {

using namespace ir;
using enum Fill;

Rows batch_norm_cases() {
  Rows rows;
  const auto all = [&](const std::string& name, Shape x, std::int64_t groups) {
    const std::int64_t c = x.back(), samples = x[0],
                       pixels = elements(x) / std::max<std::int64_t>(1, samples * c);
    const Operand image{x}, channel{{c}}, sums_of{{groups, c}}, squares{{groups, c}, positive},
        gain{{c}, positive};
    const BatchNorm counted{1e-5, 0.1, groups, samples, pixels};
    BatchNorm plain;
    plain.groups = groups;
    rows.push_back({"moments_" + name, Op::moments, plain, {image, channel}, sums});
    // Small sums and squares above them: a variance that is not all cancellation.
    rows.push_back({"batch_norm_" + name,
                    Op::batch_norm,
                    counted,
                    {image, {{groups, c}, rate}, squares, channel, gain, channel},
                    sums,
                    elements(x) < 2000 ? std::vector<int>{4, 5} : std::vector<int>{}});
    rows.push_back({"batch_norm_sums_" + name,
                    Op::batch_norm_sums,
                    plain,
                    {image, image, sums_of, squares},
                    sums});
    rows.push_back({"batch_norm_grad_" + name,
                    Op::batch_norm_grad,
                    counted,
                    {image, image, sums_of, squares, gain, sums_of, sums_of},
                    sums});
    rows.push_back({"running_stats_" + name,
                    Op::running_stats,
                    counted,
                    {channel, gain, {{groups, c}, rate}, squares, channel},
                    rounding});
  };
  // Fusion makes these: a ReLU behind the norm, a sum before that, of a value or of another norm.
  const auto fused = [&](const std::string& name, Shape x, std::int64_t groups) {
    const std::int64_t c = x.back(), samples = x[0], pixels = elements(x) / (samples * c);
    const Operand image{x}, channel{{c}}, sums_of{{groups, c}}, squares{{groups, c}, positive},
        gain{{c}, positive};
    BatchNorm plain, counted{1e-5, 0.1, groups, samples, pixels};
    plain.groups = groups;
    BatchNorm relu = counted;
    relu.relu = true;
    const std::vector<Operand> norm = {image, {{groups, c}, rate}, squares, channel, gain, channel};
    std::vector<Operand> added = norm, two = norm;
    added.push_back(image);
    two.insert(two.end(), norm.begin(), norm.end());
    const bool small = elements(x) < 2000;
    const std::vector<int> gains = small ? std::vector<int>{4, 5} : std::vector<int>{},
                           all_of = small ? std::vector<int>{4, 5, 6} : std::vector<int>{};
    rows.push_back({"batch_norm_relu_" + name, Op::batch_norm, relu, norm, sums, gains});
    rows.push_back({"batch_norm_added_" + name, Op::batch_norm, counted, added, sums, all_of});
    rows.push_back({"batch_norm_added_relu_" + name, Op::batch_norm, relu, added, sums, all_of});
    rows.push_back({"batch_norm_two_" + name, Op::batch_norm, relu, two, sums});
    rows.push_back({"batch_norm_sums_relu_" + name,
                    Op::batch_norm_sums,
                    relu,
                    {image, image, sums_of, squares, gain, channel},
                    sums});
    rows.push_back({"batch_norm_grad_relu_" + name,
                    Op::batch_norm_grad,
                    relu,
                    {image, image, sums_of, squares, gain, sums_of, sums_of, channel},
                    sums});
    std::vector<Operand> grads = {image, image, image, sums_of, squares};
    rows.push_back({"relu_grad_sums_" + name, Op::relu_grad_sums, plain, grads, sums});
    grads.push_back(image);
    rows.push_back({"relu_grad_sums_added_" + name, Op::relu_grad_sums, plain, grads, sums});
    grads.insert(grads.end(), {sums_of, squares});
    rows.push_back({"relu_grad_sums_two_" + name, Op::relu_grad_sums, plain, grads, sums});
    grads.push_back(image);
    rows.push_back({"relu_grad_sums_two_added_" + name, Op::relu_grad_sums, plain, grads, sums});
  };
  // 4, 8 and 16 channels are one vector, by some instruction set.
  for (const int c : {4, 7, 8, 16}) fused("image_of_" + std::to_string(c), {3, 5, 4, c}, 1);
  fused("groups", {5, 3, 2, 6}, 2);
  fused("rows", {33, 17}, 1);
  fused("large_groups", {7, 20, 20, 48}, 3);
  fused("wide", {5, 4, 5, 77}, 2);  // rows longer than four cache lines, and a rest
  for (const int c : {4, 7, 8, 16}) all("image_of_" + std::to_string(c), {3, 5, 4, c}, 1);
  all("groups", {5, 3, 2, 6}, 2);
  all("one_each", {4, 3, 3, 5}, 4);
  all("rows", {33, 17}, 1);
  all("one_channel", {2, 3, 5, 1}, 1);
  all("large", {6, 28, 28, 65}, 1);
  all("large_groups", {7, 20, 20, 48}, 3);
  const Operand gain{{19}, positive}, channel{{19}};
  rows.push_back({"batch_norm_fixed",
                  Op::batch_norm_fixed,
                  BatchNorm{},
                  {{{2, 5, 3, 19}}, channel, gain, gain, channel},
                  rounding});
  rows.push_back({"batch_norm_fixed_large",
                  Op::batch_norm_fixed,
                  BatchNorm{1e-3},
                  {{{2, 40, 40, 19}}, channel, gain, gain, channel},
                  rounding});
  rows.push_back({"batch_norm_scale",
                  Op::batch_norm_scale,
                  BatchNorm{1e-3},
                  {channel, gain, gain, channel},
                  rounding});
  return rows;
}

}  // namespace tessera::test
