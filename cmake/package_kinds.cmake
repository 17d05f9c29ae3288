# Read by cpack once per kind of package: which components (cmake/package.cmake) go into it.
list(GET CPACK_INSTALL_CMAKE_PROJECTS 0 build)
set(program "${build};tessera;program;/")
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_INSTALL_CMAKE_PROJECTS "${program};${build};tessera;system;/")
else()
  set(CPACK_PACKAGING_INSTALL_PREFIX "/")    # tessera-VERSION-SYSTEM/bin/tessera
  set(CPACK_INSTALL_CMAKE_PROJECTS "${program};${build};tessera;bundled;/")
endif()
