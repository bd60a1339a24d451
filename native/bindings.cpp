// The extension module: each room binds its own part in a bindings_*.cpp, the only files that know nanobind.
#include <nanobind/nanobind.h>

#include "bindings.h"

NB_MODULE(_native, m) {
    m.doc() = "twostroke's native kernels";
    twostroke::bind_weights(m);
    twostroke::bind_program(m);
}
