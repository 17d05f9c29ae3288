#include "ops/families.h"

namespace tessera::test {

using namespace ir;
using enum Fill;

Rows norm_cases() {
  Rows rows;
  const std::vector<Shape> shapes = {{3, 5, 7}, {2, 197, 65}, {33, 192}, {5, 1},
                                     {1, 3},    {7},          {0, 5, 7}};
  for (const Shape& x : shapes) {
    Shape outer = x;
    const std::int64_t c = outer.back();
    outer.pop_back();
    std::string tag;
    for (std::int64_t extent : x) tag += "_" + std::to_string(extent);
    const bool flat = c == 1;  // a row of one: y is the bias, gradients are zero
    rows.push_back({"layer_norm" + tag,
                    Op::layer_norm,
                    Norm{1e-5},
                    {{x}, {{c}}, {{c}}},
                    sums,
                    flat ? std::vector<int>{2} : std::vector<int>{0, 1, 2}});
    rows.push_back({"layer_norm_grad" + tag,
                    Op::layer_norm_grad,
                    Norm{1e-5},
                    {{x}, {x}, {outer}, {outer, positive}, {{c}}},
                    chain});
    rows.push_back({"layer_norm_grad_addend" + tag,
                    Op::layer_norm_grad,
                    Norm{1e-5},
                    {{x}, {x}, {outer}, {outer, positive}, {{c}}, {x}},
                    chain});
    rows.push_back({"add_norm" + tag, Op::add_norm, Norm{1e-5}, {{x}, {x}, {{c}}, {{c}}}, sums});
    rows.push_back({"softmax" + tag, Op::softmax, None{}, {{x}}, sums, {0}});
    rows.push_back(
        {"softmax_grad" + tag, Op::softmax_grad, None{}, {{x, probabilities}, {x}}, chain});
    rows.push_back({"log_softmax" + tag, Op::log_softmax, None{}, {{x}}, sums, {0}});
    rows.push_back({"log_softmax_grad" + tag, Op::log_softmax_grad, None{}, {{x}, {x}}, chain});
  }
  rows.push_back({"softmax_wide", Op::softmax, None{}, {{{9, 65}, wide}}, chain});
  rows.push_back({"log_softmax_wide", Op::log_softmax, None{}, {{{9, 65}, wide}}, sums});
  rows.push_back(
      {"layer_norm_wide", Op::layer_norm, Norm{1e-6}, {{{9, 65}, wide}, {{65}}, {{65}}}, sums});
  rows.push_back({"layer_norm_constant_rows",
                  Op::layer_norm,
                  Norm{1e-6},
                  {{{9, 65}, one}, {{65}}, {{65}}},
                  sums});
  return rows;
}

Rows loss_cases() {
  Rows rows;
  for (const auto& [b, c] :
       {std::pair<std::int64_t, std::int64_t>{5, 10}, {1, 3}, {33, 197}, {7, 1000}, {0, 10}}) {
    const std::string tag = "_" + std::to_string(b) + "_" + std::to_string(c);
    const Operand x{{b, c}}, soft{{b, c}, probabilities}, g{{b}};
    const int classes = static_cast<int>(c);
    for (double s : {0.0, 0.1})
      for (bool is_soft : {false, true}) {
        const Operand target = is_soft ? soft : labels_of(b);
        const std::string name = tag + (is_soft ? "_soft" : "") + (s > 0 ? "_smooth" : "");
        rows.push_back({"nll" + name, Op::nll, Loss{s}, {x, target}, sums, {0}, classes});
        rows.push_back(
            {"nll_grad" + name, Op::nll_grad, Loss{s}, {x, target, g}, rounding, {}, classes});
        rows.push_back(
            {"cross_entropy" + name, Op::cross_entropy, Loss{s}, {x, target}, sums, {0}, classes});
        rows.push_back({"cross_entropy_grad" + name,
                        Op::cross_entropy_grad,
                        Loss{s},
                        {x, target, g},
                        chain,
                        {},
                        classes});
      }
    for (int k : {1, 5}) {
      rows.push_back({"correct" + tag + "_top" + std::to_string(k),
                      Op::correct,
                      TopK{k},
                      {x, labels_of(b)},
                      exact,
                      {},
                      classes});
      rows.push_back({"correct" + tag + "_soft_top" + std::to_string(k),
                      Op::correct,
                      TopK{k},
                      {x, soft},
                      exact,
                      {},
                      classes});
      rows.push_back({"correct" + tag + "_ties_top" + std::to_string(k),
                      Op::correct,
                      TopK{k},
                      {{{b, c}, ties}, labels_of(b)},
                      exact,
                      {},
                      classes});
    }
  }
  rows.push_back({"cross_entropy_wide",
                  Op::cross_entropy,
                  Loss{},
                  {{{9, 65}, wide}, labels_of(9)},
                  sums,
                  {},
                  65});
  rows.push_back({"cross_entropy_grad_wide",
                  Op::cross_entropy_grad,
                  Loss{0.1},
                  {{{9, 65}, wide}, labels_of(9), {{9}}},
                  chain,
                  {},
                  65});
  return rows;
}

}  // namespace tessera::test
