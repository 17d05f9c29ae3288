// Eigen multiplies on the calling thread; rows of C are shared out among the threads of a pool, in
// even parts.
#include <Eigen/Core>

#include "base/threads.h"
#include "exec/cpu/peers/peers.h"

namespace tessera::exec::cpu {
namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Matrix = Eigen::Map<const RowMajor>;

void multiply_rows(const PeerProduct& p, std::int64_t first, std::int64_t count) {
  const auto *const a = static_cast<const float*>(p.a), *const b = static_cast<const float*>(p.b);
  Eigen::Map<RowMajor> c(p.c + first * p.n, count, p.n);
  const Matrix rows = p.a_turned ? Matrix(a, p.k, p.m) : Matrix(a + first * p.k, count, p.k);
  const Matrix columns = p.b_turned ? Matrix(b, p.n, p.k) : Matrix(b, p.k, p.n);
  if (p.a_turned && p.b_turned)
    c.noalias() = rows.middleCols(first, count).transpose() * columns.transpose();
  else if (p.a_turned)
    c.noalias() = rows.middleCols(first, count).transpose() * columns;
  else if (p.b_turned)
    c.noalias() = rows * columns.transpose();
  else
    c.noalias() = rows * columns;
}

}  // namespace

std::vector<PeerGemm> eigen_gemm(std::string_view dtype, int threads) {
  if (dtype != "f32") return {};
  const auto pool = std::make_shared<ThreadPool>(threads);
  const std::string version = std::to_string(EIGEN_WORLD_VERSION) + "." +
                              std::to_string(EIGEN_MAJOR_VERSION) + "." +
                              std::to_string(EIGEN_MINOR_VERSION);
  return {{.name = "Eigen", .version = version, .run = [pool](const PeerProduct& p) {
             const std::int64_t parts = pool->size();
             pool->parallel_for(parts, [&](std::int64_t part, int) {
               const std::int64_t first = p.m * part / parts;
               multiply_rows(p, first, p.m * (part + 1) / parts - first);
             });
           }}};
}

}  // namespace tessera::exec::cpu
