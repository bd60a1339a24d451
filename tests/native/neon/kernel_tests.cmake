# The kernels of this target as a program of its own: `kernel_tests [ISA ...]`, where ISAs are those it must find usable,
# the fastest first. Compiled for this machine it runs as it is, for another under CMAKE_CROSSCOMPILING_EMULATOR.
enable_testing()
list(FILTER sources EXCLUDE REGEX "native/bindings")
file(GLOB test_sources CONFIGURE_DEPENDS tests/native/neon/*.cpp)
add_executable(kernel_tests ${test_sources} ${sources})
target_link_libraries(kernel_tests PRIVATE twostroke_flags Threads::Threads)

if(CMAKE_CROSSCOMPILING AND CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # Processors with all of it, with dot products alone and with neither. i8mm and dotprod: the bits of both are checked.
  foreach(cpu_and_isas "max neon_i8mm neon portable" "cortex-a76 neon portable" "cortex-a72 portable")
    separate_arguments(isas UNIX_COMMAND "${cpu_and_isas}")
    list(POP_FRONT isas cpu)
    add_test(NAME ${cpu} COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} -cpu ${cpu} $<TARGET_FILE:kernel_tests> ${isas})
  endforeach()
else()
  add_test(NAME kernel_tests COMMAND kernel_tests)
endif()
