//! Who runs on which processor, and what the gates have used of theirs.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Whose threads are kept where.
pub(crate) enum Side {
    /// On so many processors, from the first on.
    Gate(usize),
    /// On the last one.
    Others,
}

/// The processors that this process had at its start.
static PROCESSORS: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let all = sched_getaffinity(Pid::from_raw(0)).unwrap();
    (0..CpuSet::count())
        .filter(|cpu| all.is_set(*cpu).unwrap_or(false))
        .collect()
});

/// Nobody is kept anywhere.
pub(crate) static ANYWHERE: AtomicBool = AtomicBool::new(false);

/// The logs' threads are with the others.
pub(crate) static LOG_APART: AtomicBool = AtomicBool::new(false);

/// Keeps the calling thread, and what it starts, where its side is.
pub(crate) fn keep_on(side: Side) {
    if ANYWHERE.load(Ordering::Relaxed) {
        return;
    }
    let (last, first) = PROCESSORS.split_last().unwrap();
    let wanted = match side {
        Side::Gate(count) if !first.is_empty() => &first[..count.min(first.len())],
        Side::Gate(_) | Side::Others => std::slice::from_ref(last),
    };
    let mut only = CpuSet::new();
    for cpu in wanted {
        only.set(*cpu).unwrap();
    }
    sched_setaffinity(Pid::from_raw(0), &only).unwrap();
}

/// A runtime of the calling thread, which is kept where its side is.
pub(crate) fn runtime_on(side: Side) -> tokio::runtime::Runtime {
    keep_on(side);
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// What the gates' threads have used of the processor so far.
pub(crate) fn processor_time() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let of_gates = threads.filter_map(|thread| {
        let path = thread.unwrap().path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let is_of_gate = name.starts_with("gate") || name.starts_with("audit");
        is_of_gate.then(|| std::fs::read_to_string(path.join("schedstat")).ok())?
    });
    of_gates
        .map(|stat| {
            let nanoseconds = stat.split(' ').next().unwrap_or_default().parse();
            Duration::from_nanos(nanoseconds.unwrap_or_default())
        })
        .sum()
}
