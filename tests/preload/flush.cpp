// Flushing, and looking at folders: what a test program may have linked in, also with sanitizers.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "preload/order.h"

using namespace tessera::test::faults;

extern "C" {

CALL(int, -1, fsync, fate_of(Call::fsync, file), (int file), file)
CALL(int, -1, fdatasync, fate_of(Call::fsync, file), (int file), file)
CALL(DIR*, nullptr, opendir, fate_at(Call::opendir, AT_FDCWD, path), (const char* path), path)
CALL(DIR*, nullptr, fdopendir, fate_of(Call::opendir, file), (int file), file)

}  // extern "C"
