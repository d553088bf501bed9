// The machine that runs a grid: fibers, the meetings at which they wait for one another, and the order in which they run.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

struct dim3 { unsigned x = 1, y = 1, z = 1; };

constexpr unsigned SHARED_LIMIT = 49152;
extern thread_local float dynamic_shared[];              // every `extern __shared__` array has this name and type

namespace cuda_host {

enum Order { ASCENDING, DESCENDING, SHUFFLED };
enum State { FRESH, READY, AT_BARRIER, AT_MEETING, DONE };
enum Kind { SYNC, SHUFFLE, VOTE };
constexpr int NOBODY = -1;
constexpr size_t STACK_BYTES = 128 * 1024;

// A place to go on from. Stacks are entered by ucontext; after that _setjmp and _longjmp switch between them, which
// unlike swapcontext make no system call. AddressSanitizer follows swapcontext only.
struct Context {
    ucontext_t entry;
    jmp_buf jump;
    bool entered = false;
};

struct Fiber {
    Context context;
    char *stack;
    void *fake_stack = nullptr;                          // AddressSanitizer's
};

struct Thread {
    State state;
    dim3 index;
    Fiber *fiber;
    int line;                                            // of the meeting it waits at
};

// Lanes of one warp that exchange values: complete when all lanes of `mask` have arrived.
struct Meeting {
    unsigned mask = 0, arrived = 0, departed = 0;        // mask 0: unused
    int line = 0;
    Kind kind = SYNC;
    unsigned long long value[32];
};

struct Warp {
    std::vector<Meeting> meetings = std::vector<Meeting>(4);
};

struct Machine {
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::vector<Fiber *> idle;
    Context scheduler;
    void *scheduler_fake_stack = nullptr;
    const void *scheduler_stack = nullptr;
    size_t scheduler_stack_bytes = 0;
    int current = NOBODY, done = 0, at_barrier = 0, barrier_line = 0;
    std::string error;
    void (*call)(void *function, void **args) = nullptr;
    void *function = nullptr;
    void **args = nullptr;
    unsigned long long random = 1;
};

inline Machine machine;
inline dim3 thread_index, block_index, block_size, grid_size;

// -- switching -----------------------------------------------------------------------------------------------------------
inline void change(Context &from, Context &to) {
#if defined(__SANITIZE_ADDRESS__)
    swapcontext(&from.entry, &to.entry);
#else
    from.entered = true;
    if (_setjmp(from.jump)) return;
    if (to.entered) _longjmp(to.jump, 1);
    setcontext(&to.entry);
#endif
}

inline void to_scheduler() {
    Fiber *fiber = machine.threads[machine.current].fiber;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fiber->fake_stack, machine.scheduler_stack, machine.scheduler_stack_bytes);
#endif
    change(fiber->context, machine.scheduler);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fiber->fake_stack, &machine.scheduler_stack, &machine.scheduler_stack_bytes);
#endif
}

inline void fiber_main() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &machine.scheduler_stack, &machine.scheduler_stack_bytes);
#endif
    for (;;) {
        machine.call(machine.function, machine.args);
        machine.threads[machine.current].state = DONE;
        machine.done++;
        to_scheduler();
    }
}

inline void prepare(Fiber *fiber) {
    ucontext_t &entry = fiber->context.entry;
    getcontext(&entry);
    entry.uc_stack.ss_sp = fiber->stack;
    entry.uc_stack.ss_size = STACK_BYTES;
    entry.uc_link = nullptr;
    fiber->context.entered = false;
    fiber->fake_stack = nullptr;
    makecontext(&entry, fiber_main, 0);
}

// Stacks are kept from launch to launch: allocating them would take longer than most kernels.
inline Fiber *take_fiber() {
    if (machine.idle.empty()) {
        Fiber *fiber = new Fiber;
        fiber->stack = static_cast<char *>(malloc(STACK_BYTES));
        prepare(fiber);
        return fiber;
    }
    Fiber *fiber = machine.idle.back();
    machine.idle.pop_back();
    return fiber;
}

inline void resume(int number) {
    Thread &thread = machine.threads[number];
    if (!thread.fiber) thread.fiber = take_fiber();
    machine.current = number;
    thread_index = thread.index;
    thread.state = READY;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&machine.scheduler_fake_stack, thread.fiber->stack, STACK_BYTES);
#endif
    change(machine.scheduler, thread.fiber->context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(machine.scheduler_fake_stack, nullptr, nullptr);
#endif
    if (thread.state == DONE && thread.fiber) {
        machine.idle.push_back(thread.fiber);
        thread.fiber = nullptr;
    }
}

// A thread that broke a rule stops where it is, and with it the launch.
[[noreturn]] inline void fail(const std::string &message) {
    machine.error = message;
    to_scheduler();
    abort();                                             // a failed thread is never resumed
}

// -- meetings ------------------------------------------------------------------------------------------------------------
inline void block_barrier(int line) {
    if (machine.at_barrier && machine.barrier_line != line)
        fail("threads of one block are at different barriers: lines " + std::to_string(machine.barrier_line) +
             " and " + std::to_string(line));
    machine.barrier_line = line;
    Thread &thread = machine.threads[machine.current];
    thread.state = AT_BARRIER;
    thread.line = line;
    if (++machine.at_barrier == (int)machine.threads.size()) {
        machine.at_barrier = 0;
        for (Thread &other : machine.threads) other.state = READY;
    }
    to_scheduler();
}

inline Meeting &join(Warp &warp, unsigned mask, Kind kind, int line) {
    for (Meeting &meeting : warp.meetings) {
        if (meeting.mask == 0 || meeting.arrived == meeting.mask) continue;
        if (meeting.mask == mask) {
            if (meeting.kind != kind || meeting.line != line)
                fail("lanes of one warp meet at different lines: " + std::to_string(meeting.line) + " and " +
                     std::to_string(line));
            return meeting;
        }
        if (meeting.mask & mask) fail("masks of two meetings of one warp overlap at line " + std::to_string(line));
    }
    for (Meeting &meeting : warp.meetings)
        if (meeting.mask == 0) {
            meeting.mask = mask, meeting.kind = kind, meeting.line = line;
            meeting.arrived = meeting.departed = 0;
            return meeting;
        }
    fail("more than four meetings of one warp at once at line " + std::to_string(line));
}

// Gives `value`, waits for all lanes of the mask, returns a copy of the values of all.
struct Values { unsigned long long value[32]; };

inline Values meet(unsigned mask, unsigned long long value, Kind kind, int line) {
    const int number = machine.current, lane = number % 32, first = number - lane;
    if (!(mask >> lane & 1)) fail("a lane is not in its own mask at line " + std::to_string(line));
    Meeting &meeting = join(machine.warps[number / 32], mask, kind, line);
    meeting.value[lane] = value;
    meeting.arrived |= 1u << lane;
    if (meeting.arrived == mask) {
        for (int other = 0; other < 32; other++)
            if (other != lane && mask >> other & 1) machine.threads[first + other].state = READY;
    } else {
        machine.threads[number].state = AT_MEETING;
        machine.threads[number].line = line;
        to_scheduler();
    }
    Values values;
    memcpy(values.value, meeting.value, sizeof values.value);
    meeting.departed |= 1u << lane;
    if (meeting.departed == mask) meeting.mask = 0;
    return values;
}

template <typename T> unsigned long long to_bits(T value) {
    static_assert(sizeof(T) <= 8, "shuffles move up to eight bytes");
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}

// The value of lane `source` of this lane's section of `width` lanes; a source outside keeps the own value.
template <typename T> T shuffle(unsigned mask, T value, int source, int width, int line) {
    const int lane = machine.current % 32, section = lane / width * width;
    const Values values = meet(mask, to_bits(value), SHUFFLE, line);
    if (source < section || source >= section + width) source = lane;
    if (!(mask >> source & 1)) fail("a shuffle reads a lane outside its mask at line " + std::to_string(line));
    T result;
    memcpy(&result, &values.value[source], sizeof result);
    return result;
}

inline unsigned vote(unsigned mask, bool value, int line) {
    const Values values = meet(mask, value, VOTE, line);
    unsigned ballot = 0;
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) ballot |= (unsigned)values.value[lane] << lane;
    return ballot;
}

inline int lane() { return machine.current % 32; }

// -- running a grid --------------------------------------------------------------------------------------------------------
inline unsigned long long next_random() {
    machine.random = machine.random * 6364136223846793005ull + 1442695040888963407ull;
    return machine.random >> 33;
}

inline void arrange(std::vector<int> &numbers, Order order) {
    for (size_t i = 0; i < numbers.size(); i++)
        numbers[i] = order == DESCENDING ? (int)(numbers.size() - 1 - i) : (int)i;
    if (order == SHUFFLED)
        for (size_t i = numbers.size(); i > 1; i--) std::swap(numbers[i - 1], numbers[next_random() % i]);
}

inline dim3 position(int number, const dim3 &size) {
    return {number % size.x, number / size.x % size.y, number / (size.x * size.y)};
}

inline void report_deadlock() {
    for (const Thread &thread : machine.threads)
        if (thread.state != DONE) {
            machine.error = "threads wait for ever at line " + std::to_string(thread.line) + ": " +
                            std::to_string(machine.done) + " of " + std::to_string(machine.threads.size()) +
                            " have left the kernel and the others do not meet";
            return;
        }
}

inline void run_block(Order order, unsigned shared_bytes) {
    const int n = (int)machine.threads.size();
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(dynamic_shared, SHARED_LIMIT);
#endif
    memset(dynamic_shared, 0xff, SHARED_LIMIT);          // NaN: shared memory starts undefined
#if defined(__SANITIZE_ADDRESS__)
    ASAN_POISON_MEMORY_REGION((char *)dynamic_shared + shared_bytes, SHARED_LIMIT - shared_bytes);
#else
    (void)shared_bytes;
#endif
    for (int i = 0; i < n; i++) machine.threads[i] = {FRESH, position(i, block_size), nullptr, 0};
    for (Warp &warp : machine.warps)
        for (Meeting &meeting : warp.meetings) meeting.mask = 0;
    machine.done = machine.at_barrier = 0;
    std::vector<int> numbers(n);
    arrange(numbers, order);
    while (machine.done < n && machine.error.empty()) {
        bool progress = false;
        if (order == SHUFFLED) arrange(numbers, order);
        for (int number : numbers) {
            const State state = machine.threads[number].state;
            if (state != FRESH && state != READY) continue;
            resume(number);
            progress = true;
            if (!machine.error.empty()) break;
        }
        if (!progress) report_deadlock();
    }
    for (Thread &thread : machine.threads)               // after an error: stacks with unfinished threads
        if (thread.fiber) {
            prepare(thread.fiber);
            machine.idle.push_back(thread.fiber);
        }
}

inline void run_grid(Order order, unsigned shared_bytes) {
    const int threads = (int)(block_size.x * block_size.y * block_size.z);
    machine.threads.resize(threads);
    machine.warps.resize((threads + 31) / 32);
    machine.error.clear();
    std::vector<int> blocks(grid_size.x * grid_size.y * grid_size.z);
    arrange(blocks, order);
    for (int block : blocks) {
        block_index = position(block, grid_size);
        run_block(order, shared_bytes);
        if (!machine.error.empty()) return;
    }
}

}  // namespace cuda_host
