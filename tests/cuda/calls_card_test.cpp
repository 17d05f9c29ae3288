// The calls that a training makes to the driver while it runs are counted by CUPTI, which sees the
// calls of libraries too: no memory, no wait for a stream or for the card, no launch but that of
// graphs.
#include <cupti.h>
#include <dlfcn.h>

#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#include "comm/comm.h"
#include "cuda/card.h"
#include "cuda/messages.h"
#include "exec/cuda/nccl/nccl.h"
#include "exec/executor.h"
#include "plan/plan.h"
#include "session/init.h"

namespace tessera::test::calls_card_test {
namespace {

std::mutex mutex;
std::map<std::string, int> counts;
std::atomic<bool> counting = false;

void CUPTIAPI count(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  if (!counting || call.callbackSite != CUPTI_API_ENTER) return;
  const std::lock_guard lock(mutex);
  ++counts[call.functionName];
}

// Opened when it is needed, as the executor opens its libraries.
class Cupti {
 public:
  Cupti() {
    for (const char* name :
         {"libcupti.so.13", "libcupti.so", TESSERA_CUPTI_FOLDER "/libcupti.so.13",
          TESSERA_CUPTI_FOLDER "/libcupti.so",
          TESSERA_CUPTI_FOLDER "/../extras/CUPTI/lib64/libcupti.so"})
      if (!library_) library_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library_) return;
    const auto subscribe = function<decltype(cuptiSubscribe)>("cuptiSubscribe");
    const auto enable = function<decltype(cuptiEnableDomain)>("cuptiEnableDomain");
    works_ = subscribe && enable && subscribe(&subscriber_, count, nullptr) == CUPTI_SUCCESS &&
             enable(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API) == CUPTI_SUCCESS;
  }
  ~Cupti() {
    if (const auto unsubscribe = function<decltype(cuptiUnsubscribe)>("cuptiUnsubscribe");
        works_ && unsubscribe)
      unsubscribe(subscriber_);
  }
  Cupti(const Cupti&) = delete;
  Cupti& operator=(const Cupti&) = delete;
  bool works() const { return works_; }

 private:
  template <class F>
  F* function(const char* name) const {
    return library_ ? reinterpret_cast<F*>(::dlsym(library_, name)) : nullptr;
  }
  void* library_ = nullptr;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  bool works_ = false;
};

int counted(const std::vector<std::string>& words) {
  int sum = 0;
  for (const auto& [name, times] : counts)
    for (const std::string& word : words)
      if (name.find(word) != name.npos) {
        sum += times;
        break;
      }
  return sum;
}

// As a training does it: a step is submitted before the one before it is waited for.
void train_ahead(run::Session& session, const Samples& s, std::int64_t first, std::int64_t last) {
  std::optional<run::PendingStep> before;
  for (std::int64_t i = first; i <= last; ++i) {
    run::PendingStep now = session.submit({.images = s.images,
                                           .labels = s.labels,
                                           .lr = 1e-3,
                                           .step = i,
                                           .position = 100 * i,
                                           .next_lr = 1e-3},
                                          false);
    if (before) {
      EXPECT_TRUE(before->wait().ok);
    }
    before.emplace(std::move(now));
  }
  if (before) {
    EXPECT_TRUE(before->wait().ok);
  }
}

class OnCardCalls : public OnCard {
 protected:
  void expect_quiet(const std::string& model, const std::string& dtype) {
    SCOPED_TRACE(model);
    constexpr int steps = 20;
    run::Session session(preset_on("cuda", model, dtype, 16));
    session.load(run::initial_weights(3));
    session.compiled(run::Goal::train, 16);
    session.set_step(0);
    const Samples s = samples_of(session.config().model, 1, 16);
    train_ahead(session, s, 1, 6);  // the first step by step, then a capture for each copy
    counts.clear();
    counting = true;
    train_ahead(session, s, 7, 6 + steps);
    counting = false;
    for (const auto& [name, times] : counts) std::printf("%5d %s\n", times, name.c_str());
    EXPECT_EQ(
        counted({"MemAlloc", "MemFree", "MemCreate", "MemMap", "MemHost", "ModuleLoad",
                 "LibraryLoad", "GraphInstantiate", "BeginCapture", "StreamCreate", "EventCreate"}),
        0);
    EXPECT_EQ(counted({"StreamSynchronize", "CtxSynchronize", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2",
                       "cuMemcpyDtoD_v2"}),
              0);
    EXPECT_EQ(counted({"LaunchKernel"}), 0);
    EXPECT_EQ(counted({"GraphLaunch"}), steps);
    EXPECT_LE(counted({"EventSynchronize"}), steps);  // the results of the step before, late
    RecordProperty("cases", steps);
  }
};

TEST_F(OnCardCalls, OfATrainingAreGraphsAndBatchesAlone) {
  const Cupti cupti;
  if (!cupti.works()) GTEST_SKIP() << "no CUPTI that can be used here";
  expect_quiet("vit_micro", "f32");
  expect_quiet("resnet_micro_cifar", "bf16");
  expect_quiet("swin_micro", "bf16");
}

class OnCardNcclCalls : public OnCard {};

// Messages between ranks are in the graph as well: the host neither launches nor waits for it.
TEST_F(OnCardNcclCalls, ARunWithMessagesIsOneGraph) {
  if (const std::string why = exec::cuda::nccl_missing(); !why.empty())
    GTEST_SKIP() << "no NCCL here: " << why;
  const Cupti cupti;
  if (!cupti.works()) GTEST_SKIP() << "no CUPTI that can be used here";
  const std::unique_ptr<comm::Comm> self = comm::make_self();
  const auto executor = exec::make_executor("cuda", 1, {{"dp", self.get()}}, exec::Carrier::nccl);
  const plan::Plan plan = plan::lower(sums_under_way(), 0, executor->target(), true);
  const auto loaded = executor->load(plan);
  const auto run = [&](int times) {
    const std::vector<std::byte> bytes(64 * 8 * 4, std::byte{1});
    for (int i = 0; i < times; ++i) {
      for (const char* input : {"x0", "x1", "x2"}) loaded->write(input, bytes);
      loaded->run();
    }
  };
  run(4);
  counts.clear();
  counting = true;
  run(10);
  counting = false;
  for (const auto& [name, times] : counts) std::printf("%5d %s\n", times, name.c_str());
  EXPECT_EQ(counted({"GraphLaunch"}), 10);
  EXPECT_EQ(counted({"LaunchKernel", "StreamSynchronize", "CtxSynchronize", "EventSynchronize",
                     "MemAlloc", "GraphInstantiate", "BeginCapture"}),
            0);
}

}  // namespace
}  // namespace tessera::test::calls_card_test
