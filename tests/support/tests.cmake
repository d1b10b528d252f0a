# Functions that build test programs from sources.
#
#   xtrain_test(<source> [LIBRARIES ...] [DEFINITIONS ...] [NAME name] [TIMEOUT seconds] [OPTIMISED])
#   xtrain_tests(<programs> <source>... [TIMEOUT seconds] [OPTIMISED] [WEIGHT n])
#
# A test is a source, named after its path: unit/layers/gradients.cpp is unit.layers.gradients. OPTIMISED: it computes much
# outside the cpu device's kernels.
#
# Parsing headers, and templates that several tests instantiate, are half of a test's compile time: xtrain_tests compiles
# XTRAIN_TESTS_TOGETHER sources as one, into programs <programs>.1, <programs>.2 and so on, and each test runs the cases of its source.
# A source of WEIGHT n counts as n: sources that instantiate many trainers have little in common, and the compiler needs 3 GB for four of them.
# With 1 every source is a separate program, which suits editing a test.
set(XTRAIN_TESTS_TOGETHER 1 CACHE STRING "How many sources of tests are compiled together")

# Cases that cannot run under a sanitizer, by test. The child's memory limit would include the sanitizer's own memory, and the thread
# sanitizer does not let a child of a multi-threaded process start threads.
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  set(left_out_of_train.offload "--test-case-exclude=a process that the system allows less memory*")
endif()

# xtrain_test_library(<name> <programs> <header>): the library that every test links, compiled with the same options as those programs, and their
# precompiled header
function(xtrain_test_library name programs header)
  add_library(${name} STATIC support/main.cpp support/pch.cpp)
  set_source_files_properties(support/main.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  target_link_libraries(${name} PUBLIC doctest::doctest xtrain::text ${programs})
  if(NOT XTRAIN_MISSING_recipes)
    target_link_libraries(${name} PUBLIC xtrain::recipes)
  endif()
  target_include_directories(${name} PUBLIC support)
  target_compile_definitions(${name} PUBLIC XTRAIN_GOLDEN="${CMAKE_CURRENT_SOURCE_DIR}/golden" XTRAIN_SOURCE="${PROJECT_SOURCE_DIR}")
  target_precompile_headers(${name} PRIVATE ${header})
endfunction()
xtrain_test_library(xtrain_test_main xtrain_own_programs support/pch_with_library.hpp)
xtrain_test_library(xtrain_test_main_optimised xtrain_optimised_programs support/pch.hpp)

function(xtrain_test_name source result)
  string(REPLACE "/" "." name "${source}")
  string(REGEX REPLACE "\\.cpp$" "" name "${name}")
  set(${result} ${name} PARENT_SCOPE)
endfunction()

macro(xtrain_parse_test)
  cmake_parse_arguments(T "OPTIMISED" "NAME;TIMEOUT;WEIGHT" "LIBRARIES;DEFINITIONS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  if(NOT T_WEIGHT)
    set(T_WEIGHT 1)
  endif()
endmacro()

function(xtrain_test_program program source)
  xtrain_parse_test(${ARGN})
  set(library xtrain_test_main)
  if(T_OPTIMISED)
    set(library xtrain_test_main_optimised)
  endif()
  add_executable(${program} "${source}")
  target_link_libraries(${program} PRIVATE ${library} ${T_LIBRARIES})
  target_compile_definitions(${program} PRIVATE ${T_DEFINITIONS})
  target_precompile_headers(${program} REUSE_FROM ${library})
endfunction()

function(xtrain_test source)
  xtrain_parse_test(${ARGN})
  xtrain_test_name(${source} name)
  if(T_NAME)
    set(name "${T_NAME}")
  endif()
  xtrain_test_program(${name} "${source}" ${ARGN})
  add_test(NAME ${name} COMMAND ${name} ${left_out_of_${name}})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT})
endfunction()

function(xtrain_tests programs)
  xtrain_parse_test(${ARGN})
  set(how ${ARGN})
  list(REMOVE_ITEM how ${T_UNPARSED_ARGUMENTS})
  set(together "")
  foreach(source ${T_UNPARSED_ARGUMENTS})
    # a source that opens a namespace of the library, or defines macros, cannot be included with others
    file(STRINGS "${source}" alone REGEX "^namespace [a-z]|^(struct|class) xtrain::|^#(if|define)|\"host_allocations\\.hpp\"")
    if(alone OR XTRAIN_TESTS_TOGETHER LESS_EQUAL 1)
      xtrain_test(${source} ${how})
    else()
      list(APPEND together ${source})
    endif()
  endforeach()
  xtrain_batches(batches ${T_WEIGHT} ${together})
  set(n 0)
  foreach(sources IN LISTS batches)
    math(EXPR n "${n} + 1")
    xtrain_tests_as_one(${programs}.${n} "${sources}" ${how})
  endforeach()
endfunction()

# Each source is included in its own namespace, so that equal names do not collide, after the headers that any of them includes.
# <sources> is separated by commas; <end> is appended to the file.
function(xtrain_write_as_one file sources end)
  string(REPLACE "," ";" sources "${sources}")
  set(includes "")
  set(bodies "")
  foreach(source ${sources})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")  # its includes may change
    file(STRINGS "${source}" lines REGEX "^#include ")
    list(APPEND includes ${lines})
    string(MAKE_C_IDENTIFIER "${source}" space)
    string(APPEND bodies "namespace ${space} {\n#include \"${CMAKE_CURRENT_SOURCE_DIR}/${source}\"\n}\n")
  endforeach()
  list(REMOVE_DUPLICATES includes)
  list(JOIN includes "\n" includes)
  file(CONFIGURE OUTPUT "${file}" CONTENT "${includes}\n${bodies}${end}")
endfunction()

# Builds one program of all sources; a target named after each source depends on it.
function(xtrain_tests_as_one program sources)
  xtrain_parse_test(${ARGN})
  set(one "${CMAKE_CURRENT_BINARY_DIR}/together/${program}.cpp")
  xtrain_write_as_one("${one}" "${sources}" "")
  xtrain_test_program(${program} "${one}" ${ARGN})
  string(REPLACE "," ";" sources "${sources}")
  foreach(source ${sources})
    cmake_path(GET source PARENT_PATH folder)
    target_include_directories(${program} PRIVATE "${folder}")
    xtrain_test_name(${source} name)
    add_custom_target(${name} DEPENDS ${program})
    add_test(NAME ${name} COMMAND ${program} "--source-file=*/${source}" ${left_out_of_${name}})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} FAIL_REGULAR_EXPRESSION "test cases: *0 ")
  endforeach()
endfunction()

# Splits sources into batches of XTRAIN_TESTS_TOGETHER / weight: a list of comma-separated lists.
function(xtrain_batches result weight)
  math(EXPR size "${XTRAIN_TESTS_TOGETHER} / ${weight}")
  if(size LESS 1)
    set(size 1)
  endif()
  set(sources ${ARGN})
  set(batches "")
  list(LENGTH sources left)
  while(left GREATER 0)
    list(SUBLIST sources 0 ${size} batch)
    list(REMOVE_ITEM sources ${batch})
    list(LENGTH sources left)
    list(JOIN batch "," batch)
    list(APPEND batches "${batch}")
  endwhile()
  set(${result} "${batches}" PARENT_SCOPE)
endfunction()
