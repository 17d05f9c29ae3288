# The toolchain of the preset `cross`: from x86-64 it builds for aarch64, from aarch64 for x86-64,
# with the distribution's cross compiler and the libraries in .carry/cross, and runs tests under
# qemu. ./setup --cross provides all three.
set(CMAKE_SYSTEM_NAME Linux)
if(CMAKE_HOST_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(CMAKE_SYSTEM_PROCESSOR x86_64)
else()
  set(CMAKE_SYSTEM_PROCESSOR aarch64)
endif()
set(triplet ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
set(CMAKE_C_COMPILER ${triplet}-gcc)
set(CMAKE_CXX_COMPILER ${triplet}-g++)

# Libraries of this machine are never found: they are of the wrong architecture.
get_filename_component(carry ${CMAKE_CURRENT_LIST_DIR}/../.carry/cross ABSOLUTE)
set(carry_lib ${carry}/usr/lib/${triplet})
set(CMAKE_FIND_ROOT_PATH ${carry})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_DISABLE_FIND_PACKAGE_MPI ON)    # mpicc is this machine's
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${carry_lib}")    # libraries that libraries need

# The cross compiler brings libc under /usr/<triplet>. A processor with every instruction that qemu
# knows.
set(CMAKE_CROSSCOMPILING_EMULATOR
  qemu-${CMAKE_SYSTEM_PROCESSOR} -cpu max -L /usr/${triplet} -E LD_LIBRARY_PATH=${carry_lib})
