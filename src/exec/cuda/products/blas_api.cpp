#include "exec/cuda/products/blas_api.h"

#include "exec/cuda/library.h"

namespace tessera::exec::cuda {

BlasApi load_blas() {
  const Library library = Library::open(
      {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}, "for matrix products");
  BlasApi api{};
#define LOAD(member, function) api.member = library.symbol<decltype(function)>(#function)
  LOAD(create, cublasLtCreate);
  LOAD(destroy, cublasLtDestroy);
  LOAD(status_string, cublasLtGetStatusString);
  LOAD(matmul, cublasLtMatmul);
  LOAD(heuristic, cublasLtMatmulAlgoGetHeuristic);
  LOAD(check, cublasLtMatmulAlgoCheck);
  LOAD(desc_create, cublasLtMatmulDescCreate);
  LOAD(desc_destroy, cublasLtMatmulDescDestroy);
  LOAD(desc_set, cublasLtMatmulDescSetAttribute);
  LOAD(layout_create, cublasLtMatrixLayoutCreate);
  LOAD(layout_destroy, cublasLtMatrixLayoutDestroy);
  LOAD(layout_set, cublasLtMatrixLayoutSetAttribute);
  LOAD(preference_create, cublasLtMatmulPreferenceCreate);
  LOAD(preference_destroy, cublasLtMatmulPreferenceDestroy);
  LOAD(preference_set, cublasLtMatmulPreferenceSetAttribute);
#undef LOAD
  return api;
}

}  // namespace tessera::exec::cuda
