//! The CUDA driver: the functions of it that launches need, opened when the first kernel is launched.
//!
//! Nothing of CUDA is linked, so this library builds and loads on machines without it.

use std::error::Error as _;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use tvm_ffi::{RUNTIME_ERROR, Result, bail, ensure};

const LIBRARY: &str = if cfg!(windows) {
    "nvcuda.dll"
} else {
    "libcuda.so.1"
};

// Constants of `cuda.h`.
pub const CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: c_int = 16;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: c_int = 97;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: c_int = 75;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: c_int = 76;
pub const CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;
pub const CU_JIT_ERROR_LOG_BUFFER: c_int = 5;
pub const CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: c_int = 6;
pub const CU_STREAM_CAPTURE_MODE_RELAXED: c_int = 2;
pub const CUDA_ERROR_NO_DEVICE: c_int = 100;
pub const CUDA_ERROR_UNSUPPORTED_PTX_VERSION: c_int = 222;

/// A context, module, function or stream of the driver.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Handle(pub *mut c_void);

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Handle {}
// SAFETY: the same.
unsafe impl Sync for Handle {}

macro_rules! functions {
    ($($name:ident($($argument:ty),*);)*) => {
        /// Functions of the CUDA driver under their own names; each returns a `CUresult`.
        #[allow(non_snake_case)]
        pub struct Driver {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Driver {
            fn open() -> Result<Self, libloading::Error> {
                // SAFETY: the driver's own initialisation is sound, and the types are those of `cuda.h`.
                unsafe {
                    let library = libloading::Library::new(LIBRARY)?;
                    let driver = Self {
                        $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)*
                    };
                    std::mem::forget(library); // The functions stay valid until the process ends.
                    Ok(driver)
                }
            }
        }
    };
}

functions! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuGetErrorName(c_int, *mut *const c_char);
    cuGetErrorString(c_int, *mut *const c_char);
    cuDeviceGet(*mut c_int, c_int);
    cuDeviceGetAttribute(*mut c_int, c_int, c_int);
    cuDevicePrimaryCtxRetain(*mut Handle, c_int);
    cuCtxPushCurrent_v2(Handle);
    cuCtxPopCurrent_v2(*mut Handle);
    cuThreadExchangeStreamCaptureMode(*mut c_int);
    cuModuleLoadDataEx(*mut Handle, *const c_void, c_uint, *const c_int, *const *mut c_void);
    cuModuleGetFunction(*mut Handle, Handle, *const c_char);
    cuFuncSetAttribute(Handle, c_int, c_int);
    cuLaunchKernel(
        Handle,
        c_uint, c_uint, c_uint,
        c_uint, c_uint, c_uint,
        c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
}

/// A function that older drivers lack; `None` where this one does, or has not been opened.
///
/// # Safety
/// `F` must be its type in `cuda.h`, and `name` end in NUL.
pub unsafe fn newer<F: Copy>(name: &str) -> Option<F> {
    // SAFETY: the driver is open already, and stays so.
    let library = unsafe { libloading::Library::new(LIBRARY) }.ok()?;
    // SAFETY: the caller's promise.
    let function = unsafe { library.get::<F>(name.as_bytes()) };
    function.ok().map(|function| *function)
}

/// The driver, opened and initialised; a failure is reported to this call and tried again by the next one.
pub fn driver() -> Result<&'static Driver> {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    let driver = match Driver::open() {
        Ok(driver) => driver,
        Err(error) => bail!(
            RUNTIME_ERROR,
            "no CUDA driver: {}; install the NVIDIA driver, or give the container access to the GPU",
            error
                .source()
                .map_or(error.to_string(), ToString::to_string)
        ),
    };
    // SAFETY: takes no pointers.
    let code = unsafe { (driver.cuInit)(0) };
    ensure!(
        code != CUDA_ERROR_NO_DEVICE,
        RUNTIME_ERROR,
        "no CUDA device: the driver finds no GPU; look at what `nvidia-smi` and CUDA_VISIBLE_DEVICES say"
    );
    driver.check(code, || "cannot initialise the CUDA driver".into())?;
    Ok(DRIVER.get_or_init(|| driver))
}

impl Driver {
    /// `RuntimeError` with the name of the CUDA error unless `code` says success.
    pub fn check(&self, code: c_int, problem: impl FnOnce() -> String) -> Result<()> {
        ensure!(
            code == 0,
            RUNTIME_ERROR,
            "{}: {} ({})",
            problem(),
            text(self.cuGetErrorName, code),
            text(self.cuGetErrorString, code)
        );
        Ok(())
    }

    /// CUDA version that the driver supports, 12.4 for example.
    pub fn version(&self) -> String {
        let mut version = 0;
        // SAFETY: writes one integer.
        unsafe { (self.cuDriverGetVersion)(&mut version) };
        format!("{}.{}", version / 1000, version % 1000 / 10)
    }
}

/// What one of the driver's two functions on errors says about `code`.
fn text(describe: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int, code: c_int) -> String {
    let mut text = null();
    // SAFETY: writes a pointer to a static string, or null for a code it does not know.
    unsafe {
        if describe(code, &mut text) != 0 || text.is_null() {
            return format!("CUDA error {code}");
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// Makes a context current on this thread, until dropped.
pub struct Current(&'static Driver);

impl Current {
    pub fn enter(driver: &'static Driver, context: Handle) -> Result<Self> {
        // SAFETY: `context` is a primary context, which this library never releases.
        let code = unsafe { (driver.cuCtxPushCurrent_v2)(context) };
        driver.check(code, || "cannot use the CUDA context".into())?;
        Ok(Self(driver))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let mut context = Handle(null_mut());
        // SAFETY: pops what `enter` pushed.
        unsafe { (self.0.cuCtxPopCurrent_v2)(&mut context) };
    }
}

/// Lets this thread load kernels while a stream of it is being captured into a graph, until dropped.
pub struct Relaxed(&'static Driver, c_int);

impl Relaxed {
    pub fn enter(driver: &'static Driver) -> Self {
        let mut guard = Self(driver, CU_STREAM_CAPTURE_MODE_RELAXED);
        guard.exchange();
        guard
    }

    fn exchange(&mut self) {
        // SAFETY: swaps this thread's mode with the one at the pointer.
        unsafe { (self.0.cuThreadExchangeStreamCaptureMode)(&mut self.1) };
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        self.exchange();
    }
}
