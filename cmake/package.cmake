# `cmake --install` and the packages of `cpack`: a .deb that names the libraries it needs, and a
# .tar.gz that brings them.
#
#   cmake --preset release -DTESSERA_TESTS=OFF && ninja -C build tessera
#   cd build && cpack -G "DEB;TGZ"
#
# Convention: three components. `program` is what everybody gets. `bundled` adds every library but
# glibc's under lib/tessera, where the program looks first (.tar.gz). `system` takes that place to
# look away again, as a distribution wants it (.deb).
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY TRUE)    # what is packed is what was built
include(GNUInstallDirs)
set(TESSERA_BUNDLE lib/tessera)
# The older form of the tag holds for libraries that libraries need, too.
set_target_properties(tessera PROPERTIES INSTALL_RPATH "$ORIGIN/../${TESSERA_BUNDLE}")
target_link_options(tessera PRIVATE -Wl,--disable-new-dtags)

install(TARGETS tessera RUNTIME_DEPENDENCY_SET needed RUNTIME DESTINATION bin COMPONENT program)
install(FILES README.md CHANGELOG.md DESTINATION share/doc/tessera COMPONENT program)
install(DIRECTORY docs/ DESTINATION share/doc/tessera/docs COMPONENT program
  FILES_MATCHING PATTERN "*.md" PATTERN examples EXCLUDE)
install(DIRECTORY recipes studies DESTINATION share/tessera COMPONENT program
  FILES_MATCHING PATTERN "*.toml" PATTERN "*.md")
# The manual and the completions come from the program itself (lintian asks for pages that gzip -9n
# made). One for another machine cannot say them without an emulator: such a package has none.
set(made ${CMAKE_BINARY_DIR}/package/made)
install(CODE "file(REMOVE_RECURSE \"${made}\")
file(MAKE_DIRECTORY \"${made}\")
function(say words name folder)
  execute_process(COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} \"$<TARGET_FILE:tessera>\" \${words}
    OUTPUT_FILE \"${made}/\${name}\" RESULT_VARIABLE status)
  if(status EQUAL 0 AND name STREQUAL \"tessera.1\")
    execute_process(COMMAND gzip -9n \"${made}/\${name}\" RESULT_VARIABLE status)
    set(name tessera.1.gz)
  endif()
  if(status EQUAL 0)
    file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/share/\${folder}\" TYPE FILE
      FILES \"${made}/\${name}\")
  elseif(NOT \"${CMAKE_CROSSCOMPILING}\")
    message(FATAL_ERROR \"tessera \${words} for \${name} ended with \${status}\")
  endif()
endfunction()
say(\"help;--man\" tessera.1 man/man1)
say(\"completion;bash\" tessera bash-completion/completions)
say(\"completion;zsh\" _tessera zsh/vendor-completions)
say(\"completion;fish\" tessera.fish fish/vendor_completions.d)" COMPONENT program)

# What the C library brings stays the machine's: it must fit the kernel and the loader.
install(RUNTIME_DEPENDENCY_SET needed
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|pthread|dl|rt|resolv|util)\\.so" "^libcuda\\.so"
    "^libnvidia"
  LIBRARY DESTINATION ${TESSERA_BUNDLE} COMPONENT bundled EXCLUDE_FROM_ALL)

# A library with a path of its own (MPI's) would not look where the program does.
install(CODE "set(bundle \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${TESSERA_BUNDLE}\")
file(GLOB libraries \"\${bundle}/*.so*\")
foreach(library \${libraries})
  if(NOT IS_SYMLINK \${library})
    file(RPATH_REMOVE FILE \${library})
  endif()
endforeach()" COMPONENT bundled EXCLUDE_FROM_ALL)

# Debian wants a copyright and a changelog beside the program.
set(maintainer "Tessera developers <tessera@users.noreply.github.com>")
string(TIMESTAMP today "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${CMAKE_BINARY_DIR}/package/copyright
"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: tessera

Files: *
Copyright: 2026 the Tessera developers
License: Apache-2.0
 On Debian systems the text of the license is in
 /usr/share/common-licenses/Apache-2.0.
")
file(WRITE ${CMAKE_BINARY_DIR}/package/changelog
"tessera (${PROJECT_VERSION}) unstable; urgency=medium

  * See CHANGELOG.md.

 -- ${maintainer}  ${today}
")
execute_process(COMMAND gzip -9nc ${CMAKE_BINARY_DIR}/package/changelog
  OUTPUT_FILE ${CMAKE_BINARY_DIR}/package/changelog.gz)
install(FILES ${CMAKE_BINARY_DIR}/package/copyright ${CMAKE_BINARY_DIR}/package/changelog.gz
  DESTINATION share/doc/tessera
  COMPONENT system EXCLUDE_FROM_ALL)
install(CODE "file(RPATH_REMOVE FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin/tessera\")"
  COMPONENT system EXCLUDE_FROM_ALL)
install(FILES LICENSE DESTINATION share/doc/tessera COMPONENT bundled EXCLUDE_FROM_ALL)

set(CPACK_PACKAGE_NAME tessera)
set(CPACK_PACKAGE_VENDOR "Tessera developers")
set(CPACK_PACKAGE_CONTACT "${maintainer}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
  "trains and runs image classifiers under every parallelisation technique")
set(CPACK_PACKAGE_DESCRIPTION
"Tessera trains and runs image classifiers (ViT, Swin, ResNet) on one or many
processors with data, tensor, pipeline and sequence parallelism, sharded
optimizers and offloading, and compares the techniques in studies. It reads
and writes the weights of torchvision, timm and Hugging Face, and writes ONNX.")
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_FILE_NAME
  tessera-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "openmpi-bin")
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/cmake/package_kinds.cmake)
include(CPack)
