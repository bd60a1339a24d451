#include "pool.h"

#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "float_state.h"

#if TWOSTROKE_X86_64
#include <immintrin.h>
#endif

namespace twostroke {
namespace {

constexpr uint64_t kRunEnd = 0xFFFFFFFF;  // barrier number no run reaches: "this thread has ended"
// A partner that is late by more than this lost its processor: give ours away. Pauses take 10 to 40 ns.
constexpr int kSpinsBeforeYield = 2000;
// Between steps the caller is back within this time while it generates; sleeping costs 16 us to wake.
constexpr std::chrono::microseconds kSpinBeforePark(200);

constexpr int kCountBits = 20;
constexpr uint64_t kCountMask = (uint64_t{1} << kCountBits) - 1;

void pause() {
#if TWOSTROKE_X86_64
    _mm_pause();
#elif TWOSTROKE_AARCH64
    __asm__ volatile("isb");  // `yield` does nothing on most cores
#endif
}

}  // namespace

void Worker::arrive() {
    ++epoch_;
    pool_.lanes_[index_].arrived.store(epoch_, std::memory_order_release);
}

bool Worker::is_anyone_late() const {
    for (int other = 0; other < count(); ++other)
        if (pool_.is_late(other, epoch_)) return true;
    return false;
}

void Worker::wait_for_all() const { pool_.wait_for_all(index_, epoch_, count()); }

// The owner takes items from the front, others from the back. Whoever comes first in a round sets the share
// up.
bool Worker::claim(int owner, int32_t size, int32_t* index) {
    std::atomic<uint64_t>& share = pool_.lanes_[owner].share;
    const uint64_t tag = ((epoch_ >> 32 & 0xFFF) << 12 | (round_ & 0xFFF)) << 2 * kCountBits;
    uint64_t seen = share.load(std::memory_order_relaxed);
    for (;;) {
        uint64_t begin = 0;
        uint64_t end = static_cast<uint64_t>(size);
        if (seen >> 2 * kCountBits == tag >> 2 * kCountBits) {
            begin = seen >> kCountBits & kCountMask;
            end = seen & kCountMask;
        }
        if (begin >= end) return false;
        *index = static_cast<int32_t>(owner == index_ ? begin++ : --end);
        if (share.compare_exchange_weak(seen, tag | begin << kCountBits | end, std::memory_order_relaxed))
            return true;
    }
}

Pool::Pool(int num_threads, uint64_t num_past_runs)
    : num_threads_(num_threads),
      process_id_(getpid()),
      lanes_(new Lane[num_threads > 0 ? num_threads : 1]),
      run_(num_past_runs),
      parking_(new Parking) {
    if (num_threads < 1) throw std::invalid_argument("a pool needs at least one thread");
    for (int index = 0; index < num_threads; ++index) lanes_[index].arrived = num_past_runs << 32 | kRunEnd;
    try {
        threads_.reserve(num_threads - 1);
        for (int index = 1; index < num_threads; ++index)
            threads_.emplace_back([this, index, num_past_runs] { serve(index, num_past_runs); });
    } catch (const std::system_error& error) {  // a thread that nobody joins ends the process
        close();
        throw std::runtime_error("this system starts " + std::to_string(threads_.size() + 1) + " of " +
                                 std::to_string(num_threads) + " threads (" + error.what() +
                                 "): ask for fewer");
    }
}

Pool::~Pool() {
    if (getpid() != process_id_) {  // the threads live in the parent: nothing to join here
        new std::vector<std::thread>(std::move(threads_));
        static_cast<void>(parking_.release());
        return;
    }
    close();
}

void Pool::close() {
    {
        std::lock_guard lock(parking_->mutex);
        is_closing_.store(true);
    }
    parking_->wake.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void Pool::run_job(Job job) {
    if (getpid() != process_id_)
        throw std::runtime_error(
            "the threads of this model stayed in the parent process: load it after the fork");
    job_ = job;
    const uint64_t run = run_.load(std::memory_order_relaxed) + 1;
    run_.store(run);
    if (num_parked_.load() > 0) {
        std::lock_guard lock(parking_->mutex);
        parking_->wake.notify_all();
    }
    work(0, run);
    wait_for_all(0, run << 32 | kRunEnd, num_threads_);
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

// Who has no part in a run ends at once: nobody waits for it at a barrier. Its share is emptied, as a tag
// repeats after 4096 runs: one left from before would tell that its items of a later run are done.
void Pool::work(int index, uint64_t run) {
    if (index >= job_.num_workers) {
        lanes_[index].share.store(0, std::memory_order_relaxed);
    } else {
        const FloatState float_state;
        Worker worker(*this, index, run << 32);
        try {
            job_.call(job_.context, worker);
        } catch (...) {
            std::lock_guard lock(parking_->mutex);
            if (!failure_) failure_ = std::current_exception();
        }
    }
    lanes_[index].arrived.store(run << 32 | kRunEnd, std::memory_order_release);
}

void Pool::serve(int index, uint64_t run) {
    while ((run = wait_for_run(run)) != 0) work(index, run);
}

// The next run after `last`, or 0 when the pool closes.
uint64_t Pool::wait_for_run(uint64_t last) {
    const auto is_due = [&] { return run_.load() != last || is_closing_.load(); };
    const auto park_at = std::chrono::steady_clock::now() + kSpinBeforePark;
    for (int spins = 1; !is_due(); ++spins) {
        pause();
        if (spins % 64 == 0 && std::chrono::steady_clock::now() > park_at) break;
    }
    if (!is_due()) {
        num_parked_.fetch_add(1);
        std::unique_lock lock(parking_->mutex);
        parking_->wake.wait(lock, is_due);
        num_parked_.fetch_sub(1);
    }
    const uint64_t run = run_.load();
    return run != last ? run : 0;
}

// As a difference: the run number in an epoch wraps around after 2^32 runs, weeks of a busy server.
bool Pool::is_late(int worker, uint64_t epoch) const {
    return static_cast<int64_t>(lanes_[worker].arrived.load(std::memory_order_acquire) - epoch) < 0;
}

void Pool::wait_for_all(int self, uint64_t epoch, int count) const {
    for (int other = 0; other < count; ++other) {
        if (other == self) continue;
        for (int spins = 1; is_late(other, epoch); ++spins) {
            pause();
            if (spins > kSpinsBeforeYield) sched_yield();
        }
    }
}

}  // namespace twostroke
