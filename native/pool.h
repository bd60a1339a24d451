// Persistent threads for the steps of one model; worker 0 is the caller. Passed in, never global.
//
// Inside a run threads meet at barriers and spin; between runs they spin for a moment, then sleep, so an idle
// process uses no processor time. Work is cut into static ranges; what a late thread has not touched may be
// taken over, which never changes a result as an item is always computed whole.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace twostroke {

class Pool;

// One thread's view of a run. Every worker of a run must make the same calls in the same order.
class Worker {
  public:
    int index() const { return index_; }
    int count() const;

    // Returns when every worker of the run has arrived; what they wrote before is visible after. While others
    // are late, calls idle(): a short piece of work, false when there is none left.
    template <class Idle>
    void barrier(Idle&& idle) {
        arrive();
        while (is_anyone_late() && idle()) {
        }
        wait_for_all();
    }
    void barrier() {
        barrier([] { return false; });
    }

    // Calls body(item, pass) once for every item in [0, num_items) and pass in [0, num_passes): own range
    // first, pass by pass, then what late workers have not touched. A barrier must follow before the next
    // call.
    template <class Body>
    void for_each(int32_t num_items, int32_t num_passes, Body&& body);

    template <class Body>
    void for_each(int32_t num_items, Body&& body) {
        for_each(num_items, 1, [&](int32_t item, int32_t) { body(item); });
    }

  private:
    friend class Pool;
    Worker(Pool& pool, int index, uint64_t epoch) : pool_(pool), index_(index), epoch_(epoch) {}

    void arrive();
    bool is_anyone_late() const;
    void wait_for_all() const;
    bool claim(int owner, int32_t size, int32_t* index);

    Pool& pool_;
    int index_;
    uint64_t epoch_;      // run number << 32 | barriers passed in it
    uint32_t round_ = 0;  // for_each calls in this run
};

class Pool {
  public:
    // Runs are counted from `num_past_runs` on: a test begins where the count is about to wrap.
    explicit Pool(int num_threads, uint64_t num_past_runs = 0);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int num_threads() const { return num_threads_; }

    // Runs body(Worker&) on `num_workers` threads, 0 or more than there are: on all, and returns when they
    // have ended. The first exception is thrown again here; the other threads pass their remaining barriers.
    // Throws std::runtime_error in a forked child: its threads stayed in the parent.
    template <class Body>
    void run(Body&& body, int num_workers = 0) {
        using Plain = std::remove_reference_t<Body>;
        run_job({[](void* context, Worker& worker) { (*static_cast<Plain*>(context))(worker); },
                 const_cast<void*>(static_cast<const void*>(&body)),
                 0 < num_workers && num_workers < num_threads_ ? num_workers : num_threads_});
    }

  private:
    friend class Worker;

    struct Job {
        void (*call)(void*, Worker&) = nullptr;
        void* context = nullptr;
        int num_workers = 0;
    };
    // Own cache lines (two, for processors that fetch lines in pairs).
    struct alignas(128) Lane {
        std::atomic<uint64_t> arrived{0};  // epoch this thread has reached
        std::atomic<uint64_t> share{0};    // tag : 24 | begin : 20 | end : 20 of its unclaimed items
    };

    void close();
    void run_job(Job job);
    void work(int index, uint64_t run);
    void serve(int index, uint64_t run);
    uint64_t wait_for_run(uint64_t last);
    bool is_late(int worker, uint64_t epoch) const;
    void wait_for_all(int self, uint64_t epoch, int count) const;

    const int num_threads_;
    const int64_t process_id_;
    std::unique_ptr<Lane[]> lanes_;
    Job job_;
    alignas(128) std::atomic<uint64_t> run_{0};
    std::atomic<int> num_parked_{0};
    std::atomic<bool> is_closing_{false};
    // On the heap as a forked child must leave it alone: sleepers it does not have are counted inside.
    struct Parking {
        std::mutex mutex;  // guards sleeping and failure_
        std::condition_variable wake;
    };
    std::unique_ptr<Parking> parking_;
    std::exception_ptr failure_;
    std::vector<std::thread> threads_;
};

inline int Worker::count() const { return pool_.job_.num_workers; }

template <class Body>
void Worker::for_each(int32_t num_items, int32_t num_passes, Body&& body) {
    ++round_;
    const int64_t workers = count();
    for (int64_t step = 0; step < workers; ++step) {
        const int64_t owner = (index_ + step) % workers;
        const int32_t first = static_cast<int32_t>(num_items * owner / workers);
        const int32_t size = static_cast<int32_t>(num_items * (owner + 1) / workers) - first;
        int32_t index = 0;
        while (size > 0 && claim(static_cast<int>(owner), size * num_passes, &index))
            body(first + index % size, index / size);
    }
}

}  // namespace twostroke
