//! Launches the kernels of `kernels/` on the caller's device and stream.
//!
//! Each kernel is a `static` [`Kernel`], which any thread may launch. Its first launch on a device loads the PTX there.
//! Launches wait for nothing and allocate nothing, so they can be captured into a CUDA graph, the first one too.

use std::ffi::{c_int, c_uint, c_void};
use std::fmt;
use std::ptr::{from_ref, null_mut};
use std::sync::{Mutex, PoisonError};

use tvm_ffi::{DLDevice, RUNTIME_ERROR, Result, VALUE_ERROR, bail, current_stream, ensure};

use crate::driver::{self, Current, Driver, Handle, driver};
use crate::module::{Module, PerDevice, Ptx};

/// The most blocks that a grid may have in x, y and z.
pub const MAX_BLOCKS: [usize; 3] = [(1 << 31) - 1, 65_535, 65_535];

/// Bytes of dynamic shared memory that a kernel may have without asking for more.
const DEFAULT_SHARED_BYTES: u32 = 48 << 10;

/// How many threads run a kernel.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Blocks in x, y and z. A grid with none is not launched.
    pub blocks: [usize; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
}

impl Shape {
    fn fits(&self) -> bool {
        let mut pairs = self.blocks.iter().zip(MAX_BLOCKS);
        pairs.all(|(blocks, most)| *blocks <= most)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self {
            blocks: [x, y, z],
            threads,
            shared_bytes,
        } = self;
        write!(
            f,
            "{x} x {y} x {z} blocks of {threads} threads and {shared_bytes} bytes of shared memory"
        )
    }
}

/// One parameter of a kernel: a pointer or a number of at most 8 bytes, or a struct. A slice is two, its pointer and
/// its length.
#[derive(Clone, Copy)]
pub enum Parameter<'a> {
    /// The driver reads as many of its bytes, low ones first, as the kernel declares.
    Number(u64),
    /// Passed by value: the driver copies it at the launch.
    Struct(&'a dyn ByValue),
}

/// A struct that a kernel has as a parameter.
///
/// # Safety
/// It must be `#[repr(C)]`, equal to the kernel's, and hold nothing but numbers and pointers.
pub unsafe trait ByValue {}

impl Parameter<'_> {
    /// Where the driver finds the value.
    pub fn address(&self) -> *mut c_void {
        match self {
            Self::Number(number) => from_ref(number).cast_mut().cast(),
            Self::Struct(value) => from_ref(*value).cast_mut().cast(),
        }
    }
}

impl<'a, T: ByValue> From<&'a T> for Parameter<'a> {
    fn from(value: &'a T) -> Self {
        Self::Struct(value)
    }
}

impl<T> From<*mut T> for Parameter<'_> {
    fn from(pointer: *mut T) -> Self {
        Self::Number(pointer as u64)
    }
}

impl From<usize> for Parameter<'_> {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

impl From<u32> for Parameter<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<f32> for Parameter<'_> {
    fn from(number: f32) -> Self {
        Self::Number(number.to_bits().into())
    }
}

/// A kernel of the PTX with `N` parameters.
pub struct Kernel<const N: usize> {
    name: &'static str,
    /// The target whose PTX alone has it.
    target: Option<&'static str>,
    functions: PerDevice<Function>,
}

#[derive(Clone, Copy)]
struct Function {
    context: Handle,
    handle: Handle,
    /// Bytes of dynamic shared memory that it may have.
    allowed: &'static Mutex<u32>,
}

/// A kernel on a device whose context is current until this is dropped.
pub struct Entered {
    pub driver: &'static Driver,
    pub function: Handle,
    _current: Current,
}

impl<const N: usize> Kernel<N> {
    /// A kernel that the PTX has for every target.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            target: None,
            functions: PerDevice::new(),
        }
    }

    /// A kernel under `#[cfg(ptx_target = "...")]`, which [`crate::module::target`] says whether a device has.
    pub const fn only_in(target: &'static str, name: &'static str) -> Self {
        Self {
            name,
            target: Some(target),
            functions: PerDevice::new(),
        }
    }

    /// Enqueues the kernel on the current stream of a CUDA device and returns without waiting for it.
    ///
    /// # Safety
    /// The parameters must be those that the kernel declares, and the memory they point to must be on `device` and
    /// stay alive until the kernel has run.
    pub unsafe fn launch(
        &self,
        device: DLDevice,
        shape: Shape,
        parameters: [Parameter<'_>; N],
    ) -> Result<()> {
        if shape.blocks.contains(&0) {
            return Ok(());
        }
        let entered = self.enter(device, shape)?;
        let [x, y, z] = shape.blocks.map(|blocks| blocks as c_uint);
        let mut addresses = parameters.each_ref().map(Parameter::address);
        let stream = Handle(current_stream(&device).cast());
        // SAFETY: the function has `N` parameters (`load` counted them), whose addresses these are; the rest is the
        // caller's promise.
        let code = unsafe {
            (entered.driver.cuLaunchKernel)(
                entered.function,
                x,
                y,
                z,
                shape.threads,
                1,
                1,
                shape.shared_bytes,
                stream,
                addresses.as_mut_ptr(),
                null_mut(),
            )
        };
        entered.driver.check(code, || self.problem(device, shape))
    }

    /// Loads the kernel on a device by the first call, and lets it have the shared memory of the shape.
    pub fn enter(&self, device: DLDevice, shape: Shape) -> Result<Entered> {
        let id = device.device_id;
        let problem = || self.problem(device, shape);
        let [x, y, z] = MAX_BLOCKS;
        ensure!(
            shape.fits(),
            VALUE_ERROR,
            "{}: a grid has at most {x} x {y} x {z} blocks",
            problem()
        );
        let driver = driver()?;
        let Function {
            context,
            handle,
            allowed,
        } = self.functions.get(id, || self.load(driver, id))?;
        let current = Current::enter(driver, context)?;
        // Never less than before: another thread may be about to launch with what it was allowed.
        let mut allowed = allowed.lock().unwrap_or_else(PoisonError::into_inner);
        if shape.shared_bytes > *allowed {
            let attribute = driver::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = shape.shared_bytes as c_int;
            // SAFETY: `handle` is a function of the current context.
            let code = unsafe { (driver.cuFuncSetAttribute)(handle, attribute, bytes) };
            driver.check(code, problem)?;
            *allowed = shape.shared_bytes;
        }
        Ok(Entered {
            driver,
            function: handle,
            _current: current,
        })
    }

    /// What a launch that fails begins its message with.
    pub fn problem(&self, device: DLDevice, shape: Shape) -> String {
        let id = device.device_id;
        format!("cannot launch {} on cuda:{id} with {shape}", self.name)
    }

    /// The kernel on a device, which is loaded there by the first call.
    fn load(&self, driver: &'static Driver, id: i32) -> Result<Function> {
        self.check_parameters()?;
        let module = Module::on(driver, id)?;
        Ok(Function {
            context: module.context,
            handle: module.function(driver, self.name)?,
            allowed: Box::leak(Box::new(Mutex::new(DEFAULT_SHARED_BYTES))),
        })
    }

    /// An error unless the PTX for every target that should have this kernel has it, with `N` parameters.
    pub fn check_parameters(&self) -> Result<()> {
        for ptx in Ptx::all() {
            let target = ptx.target();
            if self.target.is_some_and(|only| only != target) {
                continue;
            }
            let problem = match ptx.parameters(self.name) {
                Some(count) if count == N => continue,
                Some(count) => {
                    format!(
                        "has {count} parameters in the PTX for {target} and is launched with {N}"
                    )
                }
                None => format!("is not in the PTX for {target}"),
            };
            bail!(
                RUNTIME_ERROR,
                "the kernel {} {problem}; is the PTX up to date? `python kernels/build_ptx.py` rebuilds it",
                self.name
            )
        }
        Ok(())
    }
}
