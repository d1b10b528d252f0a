# Starts a benchmark and lets it run for a few seconds at most: it must end without an error, or still be running. Run as
#   cmake -D "COMMAND=program;argument;..." -D SECONDS=2 -P start.cmake
execute_process(COMMAND ${COMMAND} TIMEOUT ${SECONDS} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE errors)
if(NOT result STREQUAL "0" AND NOT result MATCHES "timeout")
  message(FATAL_ERROR "${COMMAND}\nended with: ${result}\n${output}${errors}")
endif()
message(STATUS "${COMMAND}: ${result}\n${output}")
