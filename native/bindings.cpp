// The only file that knows nanobind.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

NB_MODULE(_native, m) { m.doc() = "twostroke's native kernels"; }
