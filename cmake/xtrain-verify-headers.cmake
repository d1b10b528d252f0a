# Makes headers_alone: every header compiles by itself with this project's warnings, with and without the compiled library. Not part of 'all'; the test
# static.headers builds it. Objects instead of -fsyntax-only per header: a later build compiles only what a change touches.
#
# Most time is spent reading common headers: headers are compiled in chains (header_chains.awk), after a precompiled base below if they include it. Neither
# hides a missing include: only included headers precede a header.
set(bases xtrain/tensor/xt.hpp xtrain/device/cpu/simd.hpp xtrain/core/json.hpp xtrain/tensor/parameters.hpp xtrain/core/file.hpp  # largest first
          xtrain/core/text.hpp)

add_custom_target(headers_alone)
get_target_property(warnings xtrain_portable_programs INTERFACE_COMPILE_OPTIONS)

# xtrain_compile_chain(<target> <header>...): adds them as one source, named after the last
function(xtrain_compile_chain target)
  list(GET ARGN -1 last)
  set(source "${CMAKE_CURRENT_BINARY_DIR}/headers_alone/${target}/${last}.cpp")
  list(TRANSFORM ARGN REPLACE "(.+)" "#include <\\1>\n")
  string(CONCAT text ${ARGN})
  file(CONFIGURE OUTPUT "${source}" CONTENT "${text}")
  target_sources(${target} PRIVATE "${source}")
endfunction()

# xtrain_headers_alone(<name> LIBRARIES <target>... HEADERS <header>... [DEFINE <macro>])
function(xtrain_headers_alone name)
  cmake_parse_arguments(A "" "DEFINE" "LIBRARIES;HEADERS" ${ARGN})
  list(TRANSFORM A_HEADERS PREPEND "${PROJECT_SOURCE_DIR}/include/")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${A_HEADERS})  # their includes may change
  execute_process(COMMAND awk -v "bases=${bases}" -v "folder=${PROJECT_SOURCE_DIR}/include" -v "define=${A_DEFINE}"
                              -f "${PROJECT_SOURCE_DIR}/cmake/header_chains.awk" ${A_HEADERS}
                  OUTPUT_VARIABLE chains OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" chains "${chains}")
  foreach(chain IN LISTS chains)
    string(REPLACE " " ";" headers "${chain}")
    list(POP_FRONT headers base)
    cmake_path(GET base STEM target)
    set(target headers_alone.${name}.${target})
    if(NOT TARGET ${target})
      add_library(${target} OBJECT EXCLUDE_FROM_ALL)
      target_link_libraries(${target} PRIVATE ${A_LIBRARIES})
      target_compile_options(${target} PRIVATE ${warnings} -O0)  # templates are not instantiated
      target_compile_definitions(${target} PRIVATE ${A_DEFINE})
      if(NOT base STREQUAL "none")
        target_precompile_headers(${target} PRIVATE <${base}>)
      endif()
      add_dependencies(headers_alone ${target})
    endif()
    xtrain_compile_chain(${target} ${headers})
  endforeach()
endfunction()

set(headers ${XTRAIN_CORE_HEADERS})
set(libraries xtrain)
foreach(component io text recipes)
  if(NOT XTRAIN_MISSING_${component})
    string(TOUPPER ${component} upper)
    list(APPEND headers ${XTRAIN_${upper}_HEADERS})
    list(APPEND libraries xtrain_${component})
  endif()
endforeach()
list(JOIN bases " " bases)
xtrain_headers_alone(plain LIBRARIES ${libraries} HEADERS ${headers})
list(FILTER headers EXCLUDE REGEX "(_impl|/core/library)\\.hpp$")  # what only the library includes
xtrain_headers_alone(with_library LIBRARIES ${libraries} HEADERS ${headers} DEFINE XTRAIN_LIBRARY)
set(bases "")
foreach(component mpi openmp parquet)
  if(NOT XTRAIN_MISSING_${component})
    string(TOUPPER ${component} upper)
    xtrain_headers_alone(${component} LIBRARIES xtrain_${component} HEADERS ${XTRAIN_${upper}_HEADERS})
  endif()
endforeach()
