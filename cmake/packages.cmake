# What Tessera takes from the distribution, each behind one interface target.

# A folder of unpacked packages (tools/carry.sh) is searched before the system; its libraries run in
# place through the build's rpath.
set(TESSERA_CARRY "$ENV{TESSERA_CARRY}" CACHE STRING
  "folder of unpacked distribution packages, for machines where nothing can be installed")
if(TESSERA_CARRY)
  get_filename_component(carry ${TESSERA_CARRY} ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})
  if(NOT IS_DIRECTORY ${carry}/usr)
    message(FATAL_ERROR
      "TESSERA_CARRY: expected unpacked packages in ${carry}/usr, found nothing; "
      "make it with tools/carry.sh")
  endif()
  file(GLOB carry_lib ${carry}/usr/lib/*-linux-gnu)
  file(GLOB carry_include ${carry}/usr/include/*-linux-gnu)
  list(PREPEND CMAKE_PREFIX_PATH ${carry}/usr)
  list(PREPEND CMAKE_LIBRARY_PATH ${carry_lib})
  list(PREPEND CMAKE_INCLUDE_PATH ${carry_include})
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

add_library(tessera_json INTERFACE)
target_link_libraries(tessera_json INTERFACE nlohmann_json::nlohmann_json)
add_library(tessera_cli INTERFACE)
target_link_libraries(tessera_cli INTERFACE CLI11::CLI11)

find_path(XXHASH_INCLUDE xxhash.h REQUIRED)
add_library(tessera_hash INTERFACE)
target_include_directories(tessera_hash SYSTEM INTERFACE ${XXHASH_INCLUDE})

find_path(TOMLPP_INCLUDE toml++/toml.h REQUIRED)
add_library(tessera_toml INTERFACE)
target_include_directories(tessera_toml SYSTEM INTERFACE ${TOMLPP_INCLUDE})

find_path(SQLITE_INCLUDE sqlite3.h REQUIRED)
find_library(SQLITE_LIBRARY sqlite3 REQUIRED)
add_library(tessera_sqlite INTERFACE)
target_include_directories(tessera_sqlite SYSTEM INTERFACE ${SQLITE_INCLUDE})
target_link_libraries(tessera_sqlite INTERFACE ${SQLITE_LIBRARY})

find_path(SPNG_INCLUDE spng.h REQUIRED)
find_library(SPNG_LIBRARY spng REQUIRED)
find_package(JPEG REQUIRED)
add_library(tessera_images INTERFACE)
target_include_directories(tessera_images SYSTEM INTERFACE ${SPNG_INCLUDE})
target_link_libraries(tessera_images INTERFACE ${SPNG_LIBRARY} JPEG::JPEG)

find_package(CURL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
add_library(tessera_download INTERFACE)
target_link_libraries(tessera_download INTERFACE CURL::libcurl ZLIB::ZLIB OpenSSL::Crypto)

find_path(HWY_INCLUDE hwy/highway.h REQUIRED)
find_library(HWY_LIBRARY hwy REQUIRED)
add_library(tessera_kernels INTERFACE)
target_include_directories(tessera_kernels SYSTEM INTERFACE ${HWY_INCLUDE})
target_link_libraries(tessera_kernels INTERFACE ${HWY_LIBRARY})

# Eigen is optional, and nothing but `bench gemm` calls it: without it exec/cpu/peers/no_eigen.cpp
# is built.
find_path(EIGEN_INCLUDE Eigen/Core PATH_SUFFIXES eigen3)
set(TESSERA_EIGEN OFF)
add_library(tessera_eigen INTERFACE)
if(EIGEN_INCLUDE)
  set(TESSERA_EIGEN ON)
  target_include_directories(tessera_eigen SYSTEM INTERFACE ${EIGEN_INCLUDE})
endif()

# MPI is optional: without it comm/no_mpi.cpp is built. Its C interface alone; the old C++ one
# warns.
include(CheckLanguage)
check_language(C)
if(CMAKE_C_COMPILER)
  enable_language(C)  # CMake looks for MPI's C interface with it
  find_package(MPI QUIET COMPONENTS C)
endif()
set(TESSERA_MPI ${MPI_C_FOUND})
add_library(tessera_mpi INTERFACE)
if(TESSERA_MPI)
  target_link_libraries(tessera_mpi INTERFACE MPI::MPI_C)
  target_compile_definitions(tessera_mpi INTERFACE OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
endif()
# The launcher of the MPI that was found, which is looked for in PATH: a machine may have several
# ("mpirun.mpich").
get_filename_component(TESSERA_MPIRUN "${MPIEXEC_EXECUTABLE}" NAME)
string(REGEX REPLACE "^mpiexec" "mpirun" TESSERA_MPIRUN "${TESSERA_MPIRUN}")
if(NOT TESSERA_MPIRUN MATCHES "^mpirun")
  set(TESSERA_MPIRUN mpirun)
endif()

target_link_libraries(tessera_options INTERFACE fmt::fmt)
