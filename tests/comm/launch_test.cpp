// The launcher that started us is read from the environment; and what a build without MPI says.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/comm.h"

namespace tessera::comm::launch_test {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Gives what mpi_launch() sees when these alone are set; the test may itself run under a launcher.
Launch launch_with(const Variables& variables) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
                           "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "PMIX_RANK",
                           "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"})
    unsetenv(name);
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  return mpi_launch();
}

void expect(const Variables& variables, int rank, int size) {
  const Launch launch = launch_with(variables);
  EXPECT_EQ(launch.rank, rank) << testing::PrintToString(variables);
  EXPECT_EQ(launch.size, size) << testing::PrintToString(variables);
}

TEST(Launch, IsReadFromEachLauncher) {
  expect({}, 0, 1);
  expect({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, 3, 4);
  expect({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, 0, 2);
  expect({{"PMIX_RANK", "1"}, {"SLURM_STEP_NUM_TASKS", "6"}}, 1, 6);
  expect({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "0"}}, 5, 8);
}

TEST(Launch, IsOneRankWhereNobodyLaunchedSeveral) {
  expect({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}, 0, 1);  // a batch script, not a step
  expect({{"SLURM_PROCID", "0"},
          {"SLURM_NTASKS", "8"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NUM_TASKS", "1"}},
         0, 1);
  expect({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}, 0, 1);
  expect({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}, 0, 1);
  expect({{"PMI_RANK", "x"}, {"PMI_SIZE", "2"}}, 0, 1);
  expect({{"PMI_RANK", "1"}}, 0, 1);
}

TEST(NoMpi, SaysHowToGetIt) {
  if (mpi_built()) GTEST_SKIP() << "this build has MPI";
  try {
    make_mpi();
    FAIL() << "an MPI world without MPI";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::usage);
    EXPECT_NE(error.hint.find("libopenmpi-dev"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tessera::comm::launch_test
