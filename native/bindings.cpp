// The extension module: each room binds its own part in a bindings_*.cpp, the only files that know nanobind.
#include "bindings.h"

#include <nanobind/nanobind.h>

NB_MODULE(_native, m) {
    m.doc() = "twostroke's native kernels";
    nanobind::set_leak_warnings(false);  // a model held by a global at exit is no leak
    twostroke::bind_arena(m);
    twostroke::bind_weights(m);
    twostroke::bind_program(m);
    twostroke::bind_sample(m);
    twostroke::bind_probe(m);
    twostroke::bind_files(m);
    twostroke::bind_text(m);
    twostroke::bind_pattern(m);
}
