#include "base/cpus.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace tessera::test::cpus_test {
namespace {

TEST(Cpus, OwnOnesAreThoseOfTheThread) {
  const std::vector<Cpu> all = own_cpus();
  ASSERT_FALSE(all.empty());
  const int last = all.back().number;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(last), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
    const std::vector<Cpu> own = own_cpus();
    ASSERT_EQ(own.size(), 1u);
    EXPECT_EQ(own[0].number, last);
    EXPECT_EQ(own_nodes(), std::vector<int>{all.back().node});
  }).join();
  const std::vector<int> nodes = own_nodes();
  EXPECT_TRUE(std::is_sorted(nodes.begin(), nodes.end()));
  EXPECT_EQ(std::adjacent_find(nodes.begin(), nodes.end()), nodes.end());
  EXPECT_TRUE(nodes.size() == 1 || has_several_nodes());
}

TEST(Cpus, MemoryIsSharedOutAmongNodes) {
  constexpr std::size_t bytes = 1 << 20;
  void* const at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  auto* const memory = static_cast<std::byte*>(at);
  const bool done = interleave(memory, bytes, own_nodes());
  std::fill_n(memory, bytes, std::byte{1});
  int policy = -1;
  const bool told =
      ::syscall(SYS_get_mempolicy, &policy, nullptr, 0, memory + bytes / 2, MPOL_F_ADDR) == 0;
  EXPECT_FALSE(interleave(memory, bytes, std::vector<int>{1000})) << "there is no such node";
  ::munmap(at, bytes);
  if (!done || !told) GTEST_SKIP() << "the system lets nobody say where memory lies";
  EXPECT_EQ(policy, MPOL_INTERLEAVE);
}

}  // namespace
}  // namespace tessera::test::cpus_test
