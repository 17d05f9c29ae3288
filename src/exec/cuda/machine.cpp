#include "exec/cuda/machine.h"

#include <algorithm>

namespace tessera::exec::cuda {
namespace {

const Card& taken(const Card& card) {
  must(::cudaSetDevice(card.index), "take hold of the card");
  return card;
}

}  // namespace

Machine::Machine(int threads, Groups given)
    : card(taken(own_card())),
      compute(make_stream()),
      upload(make_stream()),
      transfer(make_stream()),
      blas(Blas::open()),
      dnn(dnn_wanted() ? Dnn::open() : nullptr),
      context{.limits = limits_of(card, dnn != nullptr), .blas = blas.get(), .dnn = dnn.get()},
      groups(std::move(given)),
      memory(compute),
      before(make_event()),
      mark(make_event()) {
  if (!groups.empty()) pool.emplace(threads);
}

Machine::~Machine() { settle(); }

void Machine::here() const { must(::cudaSetDevice(card.index), "take hold of the card"); }

void Machine::wait_for_compute(const char* what) {
  must(::cudaEventRecord(mark, compute), what);
  wait_for(mark, what);
}

void Machine::note(const std::string& sentence) {
  if (std::find(notes.begin(), notes.end(), sentence) == notes.end()) notes.push_back(sentence);
}

void Machine::settle() {
  (void)::cudaSetDevice(card.index);
  for (const Stream* stream : {&compute, &upload, &transfer})
    (void)::cudaStreamSynchronize(*stream);
}

}  // namespace tessera::exec::cuda
