// The MPI back end under mpirun, by itself and under shared memory, rings and both: the checks of
// any Comm on the world and on its halves, and how a rank that stops ends the job. Arguments: an
// algorithm, then how many machines to pretend; or --abort, --throw, --die. Convention: every rank
// runs every test; the exit status is 1 on all of them when a check failed on one.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "base/check.h"
#include "comm/checks.h"
#include "comm/choose.h"

namespace tessera::comm {
namespace {

std::unique_ptr<Comm> world;
std::string beginning = "mpi";  // the beginning of how they talk

TEST(Mpi, TheLauncherAndMpiAgree) {
  EXPECT_TRUE(mpi_built());
  EXPECT_EQ(mpi_launch().rank, world->rank());
  EXPECT_EQ(mpi_launch().size, world->size());
}

TEST(Mpi, EveryCheck) { run_checks(*world); }

TEST(Mpi, TalksAsChosen) {
  EXPECT_TRUE(world->describe().starts_with(beginning)) << world->describe();
}

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

// A rank is killed while the others wait for it in shared memory: they say so, and slept meanwhile.
int die() {
  Choice choice;
  choice.algorithm = Algorithm::shared;
  world = choose(std::move(world), choice);
  world->barrier();
  if (world->rank() == 1) {
    const timespec second{1, 0};
    ::nanosleep(&second, nullptr);
    std::raise(SIGKILL);
  }
  const std::clock_t before = std::clock();
  try {
    world->barrier();
  } catch (const Error& error) {
    const double busy = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
    std::fprintf(stderr, "rank %d: %s, %s\n", world->rank(), error.what(),
                 busy < 0.5 ? "not spinning" : "spinning");
    std::fflush(stderr);
    std::_Exit(error.exit_code());  // what is left of MPI would wait for the dead
  }
  return 0;
}

}  // namespace
}  // namespace tessera::comm

int main(int argc, char** argv) {
  using namespace tessera;
  testing::InitGoogleTest(&argc, argv);
  try {
    comm::world = comm::make_mpi();
    const std::string word = argc > 1 ? argv[1] : "mpi";
    if (word == "--die") return comm::die();
    if (word.starts_with("--")) return comm::stop(word);
    const int machines = argc > 2 ? std::atoi(argv[2]) : 1, rank = comm::world->rank();
    comm::Choice choice;
    choice.algorithm = comm::algorithm_named(word);
    choice.machine = "machine " + std::to_string(std::min(
                                      rank, machines - 1));  // all but a few ranks on the last one
    choice.across.ring_from = 1000;
    choice.across.ring.chunk = 20000;
    comm::world = comm::choose(std::move(comm::world), choice);
    if (word == "ring") comm::beginning = "ring over mpi";
    if (word == "shared") comm::beginning = "shared memory";
    if (machines > 1 && word != "ring") comm::beginning = "shared memory within a machine (";
    std::vector<std::int32_t> failed = {RUN_ALL_TESTS()};
    comm::world->all_reduce(comm::bytes(failed), ir::DType::i32, comm::Reduction::max);
    comm::world.reset();
    return failed[0];
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
