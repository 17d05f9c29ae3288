// The bytes that go into a loaded plan and come out of it: bytes of the host that become inputs,
// batches on their way to the card, and results.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "exec/cuda/flight.h"

namespace tessera::exec::cuda {

void CudaLoaded::write(std::string_view input, std::span<const std::byte> bytes) {
  const plan::Binding* binding = plan_.input(input);
  CHECK(binding, "the plan has no input " + std::string(input));
  CHECK(plan_.home_of(binding->slot) == ir::Home::device,
        std::string(input) + " rests away from the device: write_persistent writes it");
  CHECK(static_cast<std::int64_t>(bytes.size()) == binding->slot.type.bytes(),
        "input " + std::string(input) + " takes " + std::to_string(binding->slot.type.bytes()) +
            " bytes, got " + std::to_string(bytes.size()));
  if (bytes.empty() || !binding->slot) return;
  machine_.here();
  Copy& copy = copies_[static_cast<std::size_t>(next_)];
  if (binding->slot.base == plan::Slot::feed) {
    wait_for(copy.uploaded, "copy a batch to the card");  // the last one that lay here
    std::memcpy(copy.feed + binding->slot.offset, bytes.data(), bytes.size());
    return;
  }
  ++machine_.writes;
  cuda::copy(machine_.memory.address(plan_, binding->slot, next_), bytes.data(),
             static_cast<std::int64_t>(bytes.size()), cudaMemcpyHostToDevice, machine_.compute,
             "write an input");
}

void CudaLoaded::read(std::string_view output, std::span<std::byte> bytes) {
  const plan::Binding* binding = plan_.output(output);
  CHECK(binding, "the plan has no output " + std::string(output));
  CHECK(plan_.home_of(binding->slot) == ir::Home::device,
        std::string(output) + " rests away from the device: read_persistent reads it");
  CHECK(static_cast<std::int64_t>(bytes.size()) == binding->slot.type.bytes(),
        "output " + std::string(output) + " has another size");
  const bool there = machine_.last == this && waited_run_ >= machine_.since &&
                     machine_.runs - waited_run_ < plan_.copies;
  CHECK(
      there,
      "output " + std::string(output) +
          " is read before its run was waited for, or after another that may have overwritten it");
  if (bytes.empty()) return;
  const std::int64_t place = places_[static_cast<std::size_t>(binding - plan_.outputs.data())];
  if (place >= 0 && binding->slot.base == plan::Slot::result) {  // it came with its run
    const Copy& copy = copies_[static_cast<std::size_t>(waited_copy_)];
    std::memcpy(bytes.data(), copy.found + place, bytes.size());
    return;
  }
  machine_.here();
  // A result has a copy of its own, which a later run leaves alone; a buffer is as the last run
  // leaves it.
  const cudaStream_t stream =
      binding->slot.base == plan::Slot::result ? machine_.transfer : machine_.compute;
  machine_.before_reading(stream, "read an output");
  cuda::copy(bytes.data(), machine_.memory.address(plan_, binding->slot, waited_copy_),
             static_cast<std::int64_t>(bytes.size()), cudaMemcpyDeviceToHost, stream,
             "read an output");
  machine_.wait_for_stream(stream, "read an output");
}

void CudaLoaded::upload(Copy& copy, int index) {
  if (plan_.feed_bytes == 0) return;
  // While a run is under way its successor's batch has a stream of its own; a run that nothing goes
  // before begins sooner where its batch comes by the stream that it computes on.
  const bool beside = std::any_of(copies_.begin(), copies_.end(), [](const Copy& other) {
    return other.flight && !other.flight->collected;
  });
  const cudaStream_t stream = beside ? machine_.upload : machine_.compute;
  if (beside) {
    // Another plan may still run where this one is fed, or the last run that was fed from here.
    must(::cudaStreamWaitEvent(stream, machine_.before, 0), "wait for another plan");
    must(::cudaStreamWaitEvent(stream, copy.done, 0), "wait for an earlier run");
  }
  must(::cudaEventRecord(copy.uploading, stream), "mark a batch as on its way");
  cuda::copy(machine_.memory.feed(plan_, index), copy.feed, plan_.feed_bytes,
             cudaMemcpyHostToDevice, stream, "copy a batch to the card");
  must(::cudaEventRecord(copy.uploaded, stream), "mark a batch as copied");
  if (beside) must(::cudaStreamWaitEvent(machine_.compute, copy.uploaded, 0), "wait for a batch");
}

}  // namespace tessera::exec::cuda
