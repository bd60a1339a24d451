# Compiles for 64-bit Arm on another machine, and runs what was compiled under emulation: g++-aarch64-linux-gnu and
# qemu-user-static of Debian and Ubuntu.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
