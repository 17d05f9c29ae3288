// The MPI back end under mpirun: the checks of any Comm on the world and on its halves, and how a rank that stops ends the job.
// Convention: every rank runs every test; the exit status is 1 on all of them when a check failed on one.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "base/check.h"
#include "comm/checks.h"

namespace tessera::comm {
namespace {

std::unique_ptr<Comm> world;

TEST(Mpi, TheLauncherAndMpiAgree) {
  EXPECT_TRUE(mpi_built());
  EXPECT_EQ(mpi_launch().rank, world->rank());
  EXPECT_EQ(mpi_launch().size, world->size());
}

TEST(Mpi, EveryCheck) { run_checks(*world); }

TEST(Mpi, EveryCheckOnHalves) { run_checks(*world->split(world->rank() % 2, -world->rank())); }

// The others are in the middle of something.
int stop(const std::string& how) {
  std::vector<float> data(100000);
  const Pending pending = world->start_all_reduce(bytes(data), ir::DType::f32);
  if (world->rank() == 1 && how == "--abort") world->abort("the user asked");
  if (world->rank() == 1) throw Error(ErrorKind::data, "a bad picture");
  world->barrier();
  return 0;
}

}  // namespace
}  // namespace tessera::comm

int main(int argc, char** argv) {
  using namespace tessera;
  testing::InitGoogleTest(&argc, argv);
  try {
    comm::world = comm::make_mpi();
    if (argc > 1) return comm::stop(argv[1]);
    std::vector<std::int32_t> failed = {RUN_ALL_TESTS()};
    comm::world->all_reduce(comm::bytes(failed), ir::DType::i32, comm::Reduction::max);
    comm::world.reset();
    return failed[0];
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
