#include "ops/families.h"

namespace tessera::test {

using namespace ir;
using enum Fill;

Rows update_cases() {
  Rows rows;
  for (std::int64_t n : {1, 7, 40001})
    for (bool factor : {false, true})
      for (bool ok : {false, true}) {
        const std::string tag =
            "_" + std::to_string(n) + (factor ? "_factor" : "") + (ok ? "_ok" : "");
        const Operand w{{n}}, v{{n}, positive};
        Case sgd{"sgd" + tag,
                 Op::sgd,
                 Sgd{0.9, 0.05, factor, factor, ok},
                 {w, w, w, scalar_rate},
                 rounding};
        Case adamw{"adamw" + tag,
                   Op::adamw,
                   AdamW{0.9, 0.999, 1e-8, 0.05, factor, ok},
                   {w, w, v, w, scalar_rate, scalar_step},
                   rounding};
        for (Case* c : {&sgd, &adamw}) {
          if (factor) c->in.push_back(scalar_positive);
          if (ok) c->in.push_back(scalar_one);
          rows.push_back(*c);
        }
      }
  const Operand w{{3, 5}}, v{{3, 5}, positive};
  const Rows more = {
      {"sgd_plain", Op::sgd, Sgd{}, {w, w, w, scalar_rate}, rounding},
      {"sgd_skipped",
       Op::sgd,
       Sgd{0.9, 0.05, false, true, true},
       {w, w, w, scalar_rate, scalar_one, scalar_zero},
       exact},
      {"adamw_no_decay", Op::adamw, AdamW{}, {w, w, v, w, scalar_rate, scalar_step}, rounding},
      {"adamw_skipped",
       Op::adamw,
       AdamW{0.9, 0.999, 1e-8, 0.05, true, true},
       {w, w, v, w, scalar_rate, scalar_step, scalar_one, scalar_zero},
       exact},
      {"ema", Op::ema, Ema{0.9}, {w, w}, rounding},
      {"ema_flat", Op::ema, Ema{}, {{{40001}}, {{40001}}}, rounding},
      {"clip_off", Op::clip, Clip{0}, {scalar_positive}, rounding},
      {"clip_acts", Op::clip, Clip{0.1}, {scalar_positive}, rounding},
      {"clip_passes", Op::clip, Clip{100}, {scalar_positive}, rounding},
      {"finite_one", Op::finite, None{}, {scalar_positive}, exact},
      {"finite_three", Op::finite, None{}, {scalar_positive, {{}}, scalar_zero}, exact},
      {"advance", Op::advance, None{}, {scalar_step}, exact},
      {"advance_applied", Op::advance, None{}, {scalar_step, scalar_one}, exact},
      {"advance_skipped", Op::advance, None{}, {scalar_step, scalar_zero}, exact},
      {"lookup_inside", Op::lookup, None{}, {{{5}}, scalar_step, {{}, one, DType::i64}}, exact},
      {"lookup_beyond", Op::lookup, None{}, {{{2}}, scalar_step, {{}, zero, DType::i64}}, exact},
      {"loss_scale", Op::loss_scale, LossScale{}, {scalar_positive}, rounding},
      {"loss_scale_first", Op::loss_scale, LossScale{.first = 1024}, {scalar_zero}, exact},
      {"rescale_good",
       Op::rescale,
       LossScale{},
       {scalar_one, scalar_step, scalar_step, scalar_one, scalar_one},
       exact},
      {"rescale_grows",
       Op::rescale,
       LossScale{.window = 2},
       {scalar_one, scalar_step, scalar_step, scalar_one, scalar_one},
       exact},
      {"rescale_overflow",
       Op::rescale,
       LossScale{.least = 0.25},
       {scalar_one, scalar_step, scalar_step, scalar_zero, scalar_one},
       exact},
      {"rescale_tolerates",
       Op::rescale,
       LossScale{.hysteresis = 1000},
       {scalar_one, scalar_step, scalar_step, scalar_zero, scalar_one},
       exact},
      {"rescale_unsound",
       Op::rescale,
       LossScale{},
       {scalar_one, scalar_step, scalar_step, scalar_zero, scalar_zero},
       exact},
      {"lookup_before", Op::lookup, None{}, {{{2}}, {{}, zero, DType::i64}, scalar_step}, exact},
  };
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

Rows lamb_cases() {
  const Operand w{{96}}, v{{96}, positive}, norms{{3}, positive}, zeros{{3}, zero};
  const Segments inside{{0, 32, 80}, {25, 40, 16}}, gaps{{16, 48}, {7, 9}};
  const Operand flat{{40960}}, flat_positive{{40960}, positive};
  return {
      {"lamb_direction",
       Op::lamb_direction,
       AdamW{0.9, 0.999, 1e-6, 0.05, false, false},
       {w, w, v, w, scalar_step},
       rounding},
      {"lamb_direction_flat",
       Op::lamb_direction,
       AdamW{},
       {flat, flat, flat_positive, flat, scalar_step},
       rounding},
      {"segment_sumsq", Op::segment_sumsq, inside, {w}, sums},
      {"segment_sumsq_gaps", Op::segment_sumsq, gaps, {w}, sums},
      {"segment_sumsq_flat", Op::segment_sumsq, Segments{{0, 30000}, {29999, 10000}}, {flat}, sums},
      {"lamb_update", Op::lamb_update, inside, {w, w, norms, norms, scalar_rate}, rounding},
      {"lamb_update_gaps",
       Op::lamb_update,
       gaps,
       {w, w, {{2}, positive}, {{2}, positive}, scalar_rate},
       rounding},
      {"lamb_update_no_norm", Op::lamb_update, inside, {w, w, zeros, norms, scalar_rate}, rounding},
  };
}

Rows compress_cases() {
  return {
      {"orthogonalise", Op::orthogonalise, Stream{"w"}, {{{13, 4}}}, rounding},
      {"orthogonalise_long", Op::orthogonalise, Stream{"w"}, {{{1001, 3}}}, rounding},
      {"orthogonalise_column", Op::orthogonalise, Stream{"w"}, {{{7, 1}}}, rounding},
      {"orthogonalise_wide",
       Op::orthogonalise,
       Stream{"w"},
       {{{3, 5}}},
       rounding},  // two columns have no room
      {"orthogonalise_zeros", Op::orthogonalise, Stream{"w"}, {{{6, 2}, zero}}, rounding},
      {"orthogonalise_empty", Op::orthogonalise, Stream{"w"}, {{{5, 0}}}, exact},
  };
}

}  // namespace tessera::test
