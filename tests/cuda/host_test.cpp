// This tries what of the CUDA executor can be tried without a card: its table, its workspace rules,
// plans for a card that is not there, and what it says about failures.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "base/check.h"
#include "compile/compile.h"
#include "exec/cuda/card.h"
#include "exec/cuda/cuda.h"
#include "exec/cuda/failure.h"
#include "exec/cuda/library.h"
#include "ir/builder.h"
#include "parallel/world.h"
#include "plan/plan.h"
#include "verbs/explain_memory.h"

namespace tessera::exec::cuda::host_test {
namespace {

std::optional<Error> error_of(cudaError_t status, const char* what) {
  try {
    must(status, what);
    return std::nullopt;
  } catch (const Error& e) {
    return e;
  }
}

TEST(CudaTable, EveryOpHasAKernelOrCrossesRanks) {
  for (int i = 0; i < ir::op_count; ++i) {
    const auto op = static_cast<ir::Op>(i);
    const KernelRow& row = kernel(op);
    EXPECT_EQ(row.op, op);
    const bool between = plan::crosses_ranks(op) || op == ir::Op::transfer;
    EXPECT_EQ(row.run == nullptr, between) << ir::name(op);
    for (const ir::DType dtype : {ir::DType::f64, ir::DType::f32, ir::DType::bf16, ir::DType::f16})
      EXPECT_EQ(supports(op, dtype), op != ir::Op::transfer) << ir::name(op);
  }
}

TEST(CudaTarget, APlanIsMadeWithoutACard) {
  ir::Builder b;
  const ir::Var x = b.input(ir::Input::batch, "x", {ir::DType::f32, {3, 5}, {}});
  const ir::Var w = b.input(ir::Input::param, "w", {ir::DType::f32, {7, 5}, {}});
  b.output("y", b.emit(ir::Op::contract, ir::Contract{"bc,fc->bf", "", {}}, {x, w})[0]);
  const plan::Target target = cuda::target(1);
  EXPECT_EQ(target.device, "cuda");
  EXPECT_EQ(target.alignment, 256);
  EXPECT_EQ(target.copies, 2);
  const plan::Plan plan = plan::lower(b.program(), 0, target),
                   again = plan::lower(b.program(), 0, target);
  EXPECT_EQ(plan.peak_bytes(), again.peak_bytes());  // its rules are functions
  EXPECT_EQ(plan.feed_bytes % 256, 0);
  EXPECT_EQ(plan.shared_bytes, 0);
}

// Before anything is allocated: a plan asks when it is made.
TEST(CudaTarget, ACardWithoutBf16SaysSo) {
  for (const int arch : {75, 70, 61})
    for (const ir::DType dtype : {ir::DType::f64, ir::DType::f32, ir::DType::bf16, ir::DType::f16})
      if (dtype == ir::DType::bf16) {
        EXPECT_THROW(expect_dtype(arch, dtype), Error);
      } else {
        EXPECT_NO_THROW(expect_dtype(arch, dtype));
      }
  for (const int arch : {80, 86, 89, 90, 100}) EXPECT_NO_THROW(expect_dtype(arch, ir::DType::bf16));

  const auto compile_in = [](const char* dtype) {
    const config::Config c = test::tiny("vit", dtype);
    run::compile(c, run::Goal::train, {c.batch.global}, cuda::target(1));
  };
  ::setenv("TESSERA_CUDA_ARCH", "75", 1);
  EXPECT_NO_THROW(compile_in("f16"));
  EXPECT_NO_THROW(compile_in("f32"));
  try {
    compile_in("bf16");
    ADD_FAILURE() << "a plan in bf16 was made for a card that has none";
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 10);
    EXPECT_NE(e.message.find("found one of compute capability 7.5"), std::string::npos) << e.what();
    EXPECT_NE(e.hint.find("--dtype f16"), std::string::npos) << e.what();
  }
  ::unsetenv("TESSERA_CUDA_ARCH");
  EXPECT_NO_THROW(compile_in("bf16"));
}

TEST(CudaTarget, LimitsOfACardThatIsNotThereAreAnH100s) {
  if (!machinery().cards.empty()) GTEST_SKIP() << "there is a card";
  EXPECT_EQ(limits(), Limits{});
  EXPECT_NE(missing(), "");
}

TEST(CudaFailures, EachIsASentenceWithItsKind) {
  const auto said = [](cudaError_t status) { return error_of(status, "launch a graph").value(); };
  EXPECT_FALSE(error_of(cudaSuccess, "launch a graph"));
  EXPECT_EQ(said(cudaErrorNoDevice).kind, ErrorKind::device);
  EXPECT_NE(said(cudaErrorNoDevice).message.find("found none"), std::string::npos);
  const Error old = said(cudaErrorSystemDriverMismatch);
  EXPECT_EQ(old.exit_code(), 10);
  EXPECT_NE(old.message.find("or newer"), std::string::npos) << old.what();
  EXPECT_EQ(said(cudaErrorMemoryAllocation).kind, ErrorKind::memory);
  EXPECT_NE(said(cudaErrorECCUncorrectable).message.find("was lost"), std::string::npos);
  EXPECT_NE(said(cudaErrorNoKernelImageForDevice).hint.find("cuda-all"), std::string::npos);
  const Error launch = said(cudaErrorLaunchFailure);
  EXPECT_EQ(launch.exit_code(), 10);
  EXPECT_NE(launch.message.find("launch a graph"), std::string::npos);
  EXPECT_FALSE(launch.hint.empty());
}

TEST(CudaFailures, ACallCanBeMadeToFail) {
  simulate_failure("copy a batch", 2, cudaErrorLaunchFailure);
  EXPECT_FALSE(error_of(cudaSuccess, "copy a batch to the card"));
  EXPECT_FALSE(error_of(cudaSuccess, "launch a graph"));
  EXPECT_EQ(error_of(cudaSuccess, "copy a batch to the card").value().kind, ErrorKind::device);
  EXPECT_FALSE(error_of(cudaSuccess, "copy a batch to the card"));
  simulate_failure("", 0, cudaSuccess);
}

// A limit on locked memory is no reason to end a run; a card that failed is.
TEST(CudaFailures, ARefusalIsToldFromAFailure) {
  EXPECT_FALSE(refused(cudaSuccess, "pin memory"));
  EXPECT_TRUE(refused(cudaErrorMemoryAllocation, "pin memory"));
  EXPECT_THROW(refused(cudaErrorECCUncorrectable, "pin memory"), Error);
  simulate_failure("pin memory", 1, cudaErrorMemoryAllocation);
  EXPECT_TRUE(refused(cudaSuccess, "pin memory of the host for batches"));
  simulate_failure("", 0, cudaSuccess);
}

TEST(CudaFailures, AnExecutorWithoutACardSaysWhatIsMissing) {
  if (missing().empty()) GTEST_SKIP() << "there is a card";
  try {
    make(1, {});
    FAIL() << "an executor was made without a card";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::device);
    EXPECT_NE(std::string(e.what()).find("--device cpu"), std::string::npos) << e.what();
  }
}

TEST(CudaPeak, IsOfAnElementType) {
  const DeviceInfo device = info(1);
  EXPECT_NE(device.how("bf16").find("bf16"), std::string::npos);
  EXPECT_NE(device.how("f16").find("f16"), std::string::npos);
  EXPECT_NE(device.how("f32").find("f32"), std::string::npos);
  EXPECT_EQ(device.card().empty(), machinery().cards.empty());
}

// The places of the host that batches pass through are known without a card, and of the CPU it is
// nothing.
TEST(CudaMemory, OfTheHostIsExplained) {
  config::Config config = test::tiny("vit", "f32");
  config.data.source = "synthetic";
  config.data.train_size = 20;
  config.data.test_size = 11;
  config.run.epochs = 1;
  const auto explained = [&](const char* device) {
    return run::memory_of_run(config, 0, {}, target_of(device, 1), {});
  };
  const run::RunMemory on_card = explained("cuda"), on_cores = explained("cpu");
  const std::int64_t batch = 8 * 12 * 8 * 3;  // of pixels, two copies of which are under way
  EXPECT_GE(on_card.fed, 2 * batch);
  EXPECT_GT(on_card.pinned, 2 * batch);
  EXPECT_NE(on_card.text(false).find("pinned"), std::string::npos) << on_card.text(false);
  EXPECT_EQ(on_card.json()["pinned_bytes"], on_card.pinned);
  EXPECT_EQ(on_cores.pinned, 0);
  EXPECT_EQ(on_cores.text(false).find("pinned"), std::string::npos);
}

TEST(CudaLibrary, WhatWasLookedForIsNamed) {
  EXPECT_FALSE(Library::find({"libabsent.so.1", "libabsent.so"}));
  try {
    Library::open({"libabsent.so.1", "libabsent.so"}, "to multiply");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::device);
    EXPECT_NE(std::string(e.what()).find("libabsent.so.1, then libabsent.so"), std::string::npos);
  }
  const Library c = Library::find({"libm.so.6"});
  ASSERT_TRUE(c) << c.error();
  EXPECT_NE(c.symbol<double(double)>("cos"), nullptr);
  EXPECT_THROW(c.symbol<double(double)>("no_such_function"), Error);
}

// Under every launcher the ranks of a machine go round its cards.
TEST(CudaCards, AreSharedOutByTheRankOnTheMachine) {
  std::map<std::string, std::string> set;
  const Environment environment = [&](const char* name) {
    const auto found = set.find(name);
    return found == set.end() ? nullptr : found->second.c_str();
  };
  EXPECT_EQ(card_for(4, -1, environment), 0);  // no launcher
  for (const char* launcher : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK",
                               "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}) {
    for (int rank = 0; rank < 9; ++rank) {
      set = {{launcher, std::to_string(rank)}};
      EXPECT_EQ(local_rank(-1, environment), rank) << launcher;
      EXPECT_EQ(card_for(4, -1, environment), rank % 4) << launcher;
      EXPECT_EQ(card_for(1, -1, environment), 0) << launcher;
    }
    EXPECT_EQ(card_for(4, 2, environment), 2) << launcher << ": a thread knows its own number";
  }
  set = {{"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"SLURM_LOCALID", "0"}};
  EXPECT_EQ(card_for(4, -1, environment), 3);  // mpirun inside of a job of srun
  set["TESSERA_CUDA_CARD"] = "1";
  EXPECT_EQ(card_for(4, -1, environment), 1);
  for (const char* wrong : {"4", "-1"}) {
    set["TESSERA_CUDA_CARD"] = wrong;
    EXPECT_THROW(card_for(4, -1, environment), Error) << wrong;
  }
}

TEST(CudaFacts, AreNamesAndValues) {
  for (const auto& [name, value] : facts()) {
    EXPECT_FALSE(name.empty());
    EXPECT_FALSE(value.empty()) << name;
  }
  const auto all = facts();
  const bool said = std::any_of(all.begin(), all.end(),
                                [](const auto& fact) { return fact.first == "peer access"; });
  EXPECT_EQ(said, !machinery().cards.empty());
}

}  // namespace
}  // namespace tessera::exec::cuda::host_test
