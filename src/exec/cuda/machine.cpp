#include "exec/cuda/machine.h"

#include <algorithm>
#include <exception>

#include "exec/cuda/nccl/channels.h"

namespace tessera::exec::cuda {
namespace {

const Card& taken(const Card& card) {
  must(::cudaSetDevice(card.index), "take hold of the card");
  return card;
}

}  // namespace

Machine::Machine(int threads, Groups given, Carrier carrier, std::string folder,
                 Liberties liberties)
    : card(taken(own_card())),
      compute(make_stream()),
      upload(make_stream()),
      transfer(make_stream()),
      fetch(make_stream()),
      stow(make_stream()),
      choices(choices_on(card)),
      blas(Blas::open(&choices)),
      dnn(dnn_wanted() ? Dnn::open(&choices) : nullptr),
      context{.limits = limits_of(card, dnn != nullptr),
              .blas = blas.get(),
              .dnn = dnn.get(),
              .tf32 = liberties.tf32,
              .any_order = liberties.any_order},
      groups(std::move(given)),
      memory(compute, std::move(folder)),
      before(make_event()),
      mark(make_event()) {
  if (!groups.empty()) pool.emplace(threads);
  if (!groups.empty() && carrier == Carrier::nccl) channels = std::make_unique<Channels>(groups);
}

Machine::~Machine() { settle(); }

void Machine::here() const { must(::cudaSetDevice(card.index), "take hold of the card"); }

void Machine::wait(cudaEvent_t event, const char* what) {
  if (channels)
    channels->wait(event, what);
  else
    wait_for(event, what);
}

void Machine::wait_for_stream(cudaStream_t stream, const char* what) {
  must(::cudaEventRecord(mark, stream), what);
  wait(mark, what);
}

void Machine::note(const std::string& sentence) {
  if (std::find(notes.begin(), notes.end(), sentence) == notes.end()) notes.push_back(sentence);
}

void Machine::settle() {
  (void)::cudaSetDevice(card.index);
  // A thread that unwinds may have left others waiting, and waits for them only so long.
  const double patience_s = std::uncaught_exceptions() > 0 ? 2 : 1e9;
  for (const Stream* stream : {&compute, &upload, &transfer, &fetch, &stow}) {
    if (channels) channels->settle(*stream, patience_s);
    (void)::cudaStreamSynchronize(*stream);
  }
}

}  // namespace tessera::exec::cuda
