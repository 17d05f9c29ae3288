// The cards of this machine and what a plan must know of the one in use. Convention: asking starts
// nothing on a card and never throws; Card::use does both.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "exec/choices.h"
#include "exec/cuda/kernel.h"

namespace tessera::exec::cuda {

struct Card {
  int index = 0;
  std::string name;
  int arch = 0;  // compute capability, 10 x major + minor
  int multiprocessors = 0;
  std::int64_t shared_per_block = 0, memory = 0;
  std::string identity{};  // of this card alone, on any machine
};

// Asked once in a process.
struct Machinery {
  int driver = 0, runtime = 0;  // versions of CUDA: 1000 x major + 10 x minor; 0: no driver
  cudaError_t status = cudaSuccess;
  std::vector<Card> cards;
};
const Machinery& machinery();

// The value of a variable, or null.
using Environment = std::function<const char*(const char* name)>;
// This rank among those of its machine: a thread of this process (from 0; -1: it is none), or as
// mpirun, srun and the launchers of other libraries say it.
int local_rank(int thread, const Environment& environment);
// Which of `count` cards that rank takes: the ranks of a machine go round, and TESSERA_CUDA_CARD
// names another. Error(usage) when there is none of that number.
int card_for(int count, int thread, const Environment& environment);

// The card of this process: the rank on this machine, counted around; TESSERA_CUDA_CARD names
// another. Error(device) when there is none.
const Card& own_card();

// Whether cuDNN may be used: this build has its headers, the library is there, and TESSERA_CUDNN is
// not 0.
bool dnn_wanted();
// Limits of the card; without a card, those of an H100 with cuDNN. TESSERA_CUDA_ARCH=75 pretends
// another compute capability, to see what is said there.
Limits limits();
Limits limits_of(const Card& card, bool dnn);
// An empty table for what is chosen on this card: its name and capability, and the versions of the
// libraries.
Choices choices_on(const Card& card);
// Error(device) where cards of this compute capability (10 x major + minor) do not compute with
// elements of this type: bf16 came with 8.0.
void expect_dtype(int arch, ir::DType dtype);

}  // namespace tessera::exec::cuda
