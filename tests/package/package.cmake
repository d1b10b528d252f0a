# Shared by package tests: scripts that configure, build and run their own programs, with the enclosing build's compiler:
#   cmake -D SOURCE=<checkout> -D SCRATCH=<folder> -D COMPILER=... -D LAUNCHER=... -D GENERATOR=... -D PREFIX_PATH=... -D MPI=<is there one>
#         -D COMPILED=<the folder of xtrain::library compiled for the processor at hand, or nothing> -P <script>
cmake_minimum_required(VERSION 3.25)
set(consumers "${SOURCE}/tests/package")
set(prefix "${SCRATCH}/prefix")
if(PREFIX_PATH)  # where the enclosing build has found xtrain's dependencies
  cmake_path(CONVERT "${PREFIX_PATH}" TO_NATIVE_PATH_LIST places)
  set(ENV{CMAKE_PREFIX_PATH} "${places}")
endif()

# run(<result> <command>...): <result>_rc is the exit status, <result> all output as one line
function(run result)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE rc OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " line "${said}")
  set(${result} "${line}" PARENT_SCOPE)
  set(${result}_rc "${rc}" PARENT_SCOPE)
  set(${result}_text "${said}" PARENT_SCOPE)
endfunction()

function(must_run)
  run(said ${ARGN})
  if(NOT said_rc EQUAL 0)
    list(JOIN ARGN " " command)
    message(NOTICE "${said_text}")
    message(FATAL_ERROR "must succeed, its exit status is ${said_rc}: ${command}")
  endif()
  set(said "${said}" PARENT_SCOPE)
endfunction()

macro(configure_command source build)
  set(command "${CMAKE_COMMAND}" -S "${source}" -B "${build}" -G "${GENERATOR}" -D CMAKE_CXX_COMPILER=${COMPILER}
              -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
endmacro()

# configures(<consumer> <build folder> <definition>...)
function(configures consumer build)
  configure_command("${consumer}" "${SCRATCH}/${build}")
  must_run(${command} ${ARGN})
  set(said "${said}" PARENT_SCOPE)
endfunction()

# refuses(<consumer> <build folder> <sentence> <definition>...): it must not configure, and must say the sentence
function(refuses consumer build sentence)
  configure_command("${consumer}" "${SCRATCH}/${build}")
  run(said ${command} ${ARGN})
  string(FIND "${said}" "${sentence}" at)
  if(said_rc EQUAL 0 OR at EQUAL -1)
    list(JOIN ARGN " " asked)
    message(NOTICE "${said_text}")
    message(FATAL_ERROR "must be refused with '${sentence}', its exit status is ${said_rc}: ${asked}")
  endif()
endfunction()

function(builds build)
  must_run("${CMAKE_COMMAND}" --build "${SCRATCH}/${build}" --parallel 1)  # other tests run beside it
endfunction()
