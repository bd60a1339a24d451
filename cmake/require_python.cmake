# Python 3.11 with its headers, or the package that brings them.
find_package(Python 3.11 QUIET COMPONENTS Interpreter)
if(NOT Python_Interpreter_FOUND)
  message(FATAL_ERROR "twostroke needs Python 3.11 or newer and found none. "
    "Name one: cmake -DPython_EXECUTABLE=/path/to/python3")
endif()
find_package(Python 3.11 QUIET COMPONENTS Interpreter Development.Module)
if(NOT Python_Development.Module_FOUND OR NOT EXISTS "${Python_INCLUDE_DIRS}/Python.h")
  set(version "${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}")
  message(FATAL_ERROR "twostroke needs the headers of Python ${version} (Python.h) and "
    "${Python_EXECUTABLE} has none. Install them, then try again:
    Debian, Ubuntu:  apt-get install python${version}-dev
    Fedora:          dnf install python3-devel
    Alpine:          apk add python3-dev
  or use a Python that has them, such as one from uv, conda or python.org.")
endif()
