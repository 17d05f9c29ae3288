// Memory for the way out. Where an allocation fails, destructors run, and some of them allocate:
// that of a JSON value does, and one that throws ends the process without a word. Convention: the
// allocation that failed fails all the same, with std::bad_alloc.
#pragma once

namespace tessera {

// Sets a few MiB of addresses aside, which the first allocation that fails gives back to the
// system. Once, when the process starts.
void reserve_memory_for_the_way_out();

}  // namespace tessera
