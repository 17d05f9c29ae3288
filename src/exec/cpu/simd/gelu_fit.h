// The coefficients of gelu (vector_math-inl.h), which tools/fit_erf.py finds. With R(t) =
// erf(x / sqrt 2) / (2 x), t = x^2, a quotient of two polynomials: x/2 + t R(t), and x (1/2 + u
// R(u^2)) with u = x cut off where R has nothing to add, in fewer operations for results that
// become bf16.
#pragma once

namespace tessera::exec::cpu {

struct GeluFit {
  float above[6], below[6];
  float most_square;  // |x|/2 from there on
};
inline constexpr GeluFit gelu_fit{.above = {3.989422754e-01f, 3.302928495e-02f, 4.628959336e-03f,
                                            1.606942510e-04f, 6.323726975e-06f, 2.359116874e-08f},
                                  .below = {1.0f, 2.494586028e-01f, 2.818004955e-02f,
                                            1.838650392e-03f, 7.117273013e-05f, 1.219829397e-06f},
                                  .most_square = 5.4f * 5.4f};

struct GeluLowFit {
  float above[4], below[4];
  float most;  // of u
  float half;  // most R(most^2), so that nothing is left of numbers below -most
};
inline constexpr GeluLowFit gelu_low_fit{
    .above = {3.989328998e-01f, 2.738363486e-02f, 3.832216130e-03f, 3.333677252e-05f},
    .below = {1.0f, 2.352851955e-01f, 2.380658423e-02f, 1.166810341e-03f},
    .most = 4.5f,
    .half = 0.49999705f};

}  // namespace tessera::exec::cpu
