// A build that found no headers of Eigen.
#include "exec/cpu/peers/peers.h"

namespace tessera::exec::cpu {

std::vector<PeerGemm> eigen_gemm(std::string_view, int) { return {}; }

}  // namespace tessera::exec::cpu
