// NCCL itself, with the one rank that one card can have: every message of a plan, in every element
// type, eagerly and as a graph.
#include "base/check.h"
#include "comm/comm.h"
#include "cuda/card.h"
#include "cuda/messages.h"
#include "exec/cuda/nccl/nccl.h"
#include "exec/executor.h"
#include "plan/plan.h"

namespace tessera::test::nccl_card_test {
namespace {

using namespace ir;

class OnCardNccl : public OnCard {
 protected:
  void SetUp() override {
    OnCard::SetUp();
    if (const std::string why = exec::cuda::nccl_missing(); !why.empty())
      GTEST_SKIP() << "no NCCL here: " << why;
  }
};

TEST_F(OnCardNccl, EveryMessageOfOneRankComesBack) {
  const std::unique_ptr<comm::Comm> self = comm::make_self();
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::i64, DType::i32, DType::u8})
    for (const Shape& shape : {Shape{5, 7}, Shape{1, 300}, Shape{3, 0}})
      for (const bool overlap : {false, true}) {
        const Program program = messages(dtype, shape);
        const auto executor =
            exec::make_executor("cuda", 1, {{"dp", self.get()}}, exec::Carrier::nccl);
        const plan::Plan plan = plan::lower(program, 0, executor->target(), overlap);
        const auto loaded = executor->load(plan);
        const auto bytes = static_cast<std::size_t>(elements(shape) * size_of(dtype));
        for (int run = 1; run <= 5; ++run) {  // the first step by step, then two graphs, then again
          for (std::size_t k = 0; k < program.inputs.size(); ++k)
            loaded->write("x" + std::to_string(k),
                          std::vector<std::byte>(bytes, static_cast<std::byte>(7 * run + k)));
          const exec::Results results = loaded->run({.spans = run == 4});
          EXPECT_GE(results.timeline.wall_ms, 0);
          for (std::size_t k = 0; k < program.inputs.size(); ++k) {
            std::vector<std::byte> found(bytes);
            loaded->read("y" + std::to_string(k), found);
            EXPECT_EQ(found, std::vector<std::byte>(bytes, static_cast<std::byte>(7 * run + k)))
                << name(dtype) << " " << to_string(shape) << " message " << k << " run " << run;
          }
          if (run == 4 && bytes > 0) {
            std::size_t flights = 0;
            for (const exec::Timeline::Span& span : results.timeline.spans)
              flights += span.kind == exec::Timeline::flight;
            EXPECT_EQ(flights, program.inputs.size());
          }
        }
        EXPECT_EQ(self->traffic()[comm::Verb::all_reduce].count % 5, 0);
        RecordProperty("cases", 1);
      }
}

// A group is left when its executor is, and joined again by the next.
TEST_F(OnCardNccl, GroupsComeAndGo) {
  const std::unique_ptr<comm::Comm> self = comm::make_self();
  for (int i = 0; i < 3; ++i) {
    const auto executor = exec::make_executor("cuda", 1, {{"dp", self.get()}}, exec::Carrier::nccl);
    const plan::Plan plan = plan::lower(messages(DType::f32, {4, 4}), 0, executor->target(), true);
    const auto loaded = executor->load(plan);
    for (int k = 0; k < 6; ++k)
      loaded->write("x" + std::to_string(k), std::vector<std::byte>(64, std::byte{1}));
    EXPECT_NO_THROW(loaded->run());
  }
}

}  // namespace
}  // namespace tessera::test::nccl_card_test
