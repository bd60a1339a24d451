#include "instr.h"

namespace twostroke {
namespace {

constexpr const char* kNames[kNumOps] = {"embed", "rmsnorm", "linear", "rope",    "kv_write", "attend",
                                         "glu",   "add",     "scale",  "softcap", "select",   "logits"};

}  // namespace

const char* op_name(Op op) { return kNames[static_cast<int32_t>(op)]; }

bool op_from_name(const std::string& name, Op* op) {
    for (int32_t i = 0; i < kNumOps; ++i) {
        if (name != kNames[i]) continue;
        *op = static_cast<Op>(i);
        return true;
    }
    return false;
}

}  // namespace twostroke
