# A C++20 compiler, or the package that brings one.
set(compiler_fix
  "Install g++ 11 or clang++ 14 or newer, then try again:
    Debian, Ubuntu:  apt-get install g++
    Fedora:          dnf install gcc-c++
    Arch:            pacman -S gcc
    Alpine:          apk add g++
    macOS:           xcode-select --install
  or name one that is there already: CXX=/path/to/g++ pip install .")

include(CheckLanguage)
check_language(CXX)
if(NOT CMAKE_CXX_COMPILER)
  message(FATAL_ERROR "twostroke needs a C++20 compiler and found none. ${compiler_fix}")
endif()
enable_language(CXX)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_EXTENSIONS OFF)
include(CheckCXXSourceCompiles)
check_cxx_source_compiles("
  #include <bit>
  #include <concepts>
  #include <cstdint>
  #include <span>
  template <std::integral T> constexpr T twice(T x) { return x + x; }
  int main() { int x[2] = {1, 2}; return twice(int(std::span<int>(x).size()) + std::countr_zero(4u)) - 8; }
" TWOSTROKE_HAS_CXX20)
if(NOT TWOSTROKE_HAS_CXX20)
  message(FATAL_ERROR "twostroke needs C++20, which ${CMAKE_CXX_COMPILER} "
    "(${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}) does not compile. ${compiler_fix}")
endif()
set(CMAKE_CXX_STANDARD_REQUIRED ON)
