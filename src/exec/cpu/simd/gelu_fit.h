// The coefficients of gelu (vector_math-inl.h), which tools/fit_erf.py finds: x/2 erf(x / sqrt 2)
// is x^2 R(x^2), R a quotient of two polynomials.
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

}  // namespace tessera::exec::cpu
