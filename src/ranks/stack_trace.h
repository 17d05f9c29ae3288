// Where a thread of this process is: the functions it is inside of, as far as the system tells.
// Convention: for reports of what hangs. The thread is interrupted for an instant by a signal; one
// that is in the kernel and cannot be interrupted gives no trace.
#pragma once

#include <pthread.h>

#include <string>

namespace tessera::run {

// Before anything hangs: what the first trace would need memory for.
void prepare_stack_traces();

// One function a line, the innermost first, each line after `indent`; "": the thread did not
// answer.
std::string stack_of(pthread_t thread, const std::string& indent);

// The kernel's view of a process of this machine: the function of the kernel that each thread waits
// in, and the stack there where this user may read it.
std::string kernel_stack_of(int pid, const std::string& indent);

}  // namespace tessera::run
