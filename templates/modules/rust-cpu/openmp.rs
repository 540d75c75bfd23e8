//! The threads of torch, where torch is.
//!
//! torch computes on the threads of an OpenMP library, which stay awake for milliseconds after each op. Threads of our
//! own would have to wait for their cores, so we compute on the same threads. Nothing is linked: the library is used if
//! it is in the process at the first call.

use std::any::Any;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, OnceLock};
use std::{fs, mem};

/// Functions of an OpenMP library.
pub struct Library {
    /// `GOMP_parallel`, which GCC makes of `#pragma omp parallel`, and which LLVM's library has, too: calls a function
    /// with an address on so many threads (0: as many as are set), with flags.
    parallel: unsafe extern "C" fn(Function, *mut c_void, c_uint, c_uint),
    /// `omp_get_thread_num`: the number of this thread.
    thread: unsafe extern "C" fn() -> c_int,
    /// `omp_get_max_threads`: how many threads are set.
    threads: unsafe extern "C" fn() -> c_int,
}

type Function = unsafe extern "C" fn(*mut c_void);
type Task<'a> = &'a (dyn Fn(usize) + Sync);

/// The OpenMP library of this process.
pub fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let find = || Library::find().filter(|_| !is_fork());
    LIBRARY.get_or_init(find).as_ref()
}

/// Whether this process is a copy of another, whose threads are not in it: the library would wait for them for ever.
/// The flags of a process are the ninth field (proc_pid_stat(5)), and 0x40 is `PF_FORKNOEXEC` (linux/sched.h).
fn is_fork() -> bool {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field, a name in brackets, may have spaces.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let flags = after_name.split_whitespace().nth(6);
    flags.is_none_or(|flags| flags.parse().is_ok_and(|flags: u32| flags & 0x40 != 0))
}

impl Library {
    fn find() -> Option<Self> {
        // SAFETY: these are the types of the functions of these names, in `omp.h` and in GCC's `libgomp_g.h`.
        unsafe {
            Some(Self {
                parallel: function(c"GOMP_parallel")?,
                thread: function(c"omp_get_thread_num")?,
                threads: function(c"omp_get_max_threads")?,
            })
        }
    }

    /// How many threads `run` has: what `torch.set_num_threads` says, or the environment's `OMP_NUM_THREADS`.
    pub fn threads(&self) -> usize {
        // SAFETY: it may be called at any time.
        unsafe { (self.threads)() }.max(1) as usize
    }

    /// Calls `task` on all threads, of which the caller is one, with their numbers. A panic is the caller's.
    pub fn run(&self, task: Task) {
        let panic = Mutex::new(None);
        let mut call = Call {
            library: self,
            task,
            panic: &panic,
        };
        // SAFETY: `on_thread` takes a `Call`. It has returned on all threads when this returns.
        unsafe { (self.parallel)(on_thread, (&raw mut call).cast(), 0, 0) };
        if let Some(panic) = panic.into_inner().unwrap() {
            resume_unwind(panic);
        }
    }
}

/// What `on_thread` needs.
struct Call<'a> {
    library: &'a Library,
    task: Task<'a>,
    panic: &'a Mutex<Option<Box<dyn Any + Send>>>,
}

/// # Safety
/// `call` must be the address of a [`Call`].
unsafe extern "C" fn on_thread(call: *mut c_void) {
    // SAFETY: the caller's promise; the number may be asked for at any time.
    let (call, number) = unsafe {
        let call = &*call.cast::<Call>();
        (call, (call.library.thread)())
    };
    // No panic may leave a function that C calls.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (call.task)(number as usize))) {
        *call.panic.lock().unwrap() = Some(panic);
    }
}

/// A function of a library that the process has loaded for all to use, as Python loads that of torch.
///
/// # Safety
/// `F` must be its type.
unsafe fn function<F>(name: &CStr) -> Option<F> {
    let address = address(name);
    // SAFETY: the caller's promise.
    (!address.is_null()).then(|| unsafe { mem::transmute_copy(&address) })
}

#[cfg(target_os = "linux")]
fn address(name: &CStr) -> *mut c_void {
    unsafe extern "C" {
        fn dlsym(handle: *mut c_void, name: *const std::ffi::c_char) -> *mut c_void;
    }
    const RTLD_DEFAULT: *mut c_void = std::ptr::null_mut();
    // SAFETY: the name ends with 0.
    unsafe { dlsym(RTLD_DEFAULT, name.as_ptr()) }
}

#[cfg(not(target_os = "linux"))]
fn address(_: &CStr) -> *mut c_void {
    std::ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    thread_local! {
        static NUMBER: Cell<c_int> = const { Cell::new(0) };
    }

    extern "C" fn number() -> c_int {
        NUMBER.get()
    }

    extern "C" fn three() -> c_int {
        3
    }

    unsafe extern "C" fn on_three(function: Function, data: *mut c_void, _: c_uint, _: c_uint) {
        let data = data as usize;
        thread::scope(|scope| {
            for i in 0..3 {
                scope.spawn(move || {
                    NUMBER.set(i);
                    // SAFETY: the promise of whoever calls `on_three`.
                    unsafe { function(data as *mut c_void) };
                });
            }
        });
    }

    const THREE: Library = Library {
        parallel: on_three,
        thread: number,
        threads: three,
    };

    #[test]
    fn each_thread_has_the_task() {
        let seen = [const { AtomicUsize::new(0) }; 3];
        THREE.run(&|number| {
            seen[number].fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(THREE.threads(), 3);
        assert!(seen.iter().all(|times| times.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn a_panic_is_the_callers() {
        let run = || THREE.run(&|number| assert_ne!(number, 2));
        assert!(catch_unwind(run).is_err());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn cargo_starts_tests_by_exec() {
        assert!(!is_fork());
    }
}
