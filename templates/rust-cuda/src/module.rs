//! The compiled device crate, loaded once on each device that uses it.

use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::{PoisonError, RwLock};

use tvm_ffi::{RUNTIME_ERROR, Result, ensure};

use crate::driver::{self, Current, Driver, Handle, Relaxed};

/// The PTX, with the NUL at its end that the driver expects.
static PTX: &str = concat!(
    include_str!(concat!(
        "../kernels-ptx/",
        env!("CARGO_CRATE_NAME"),
        "_device.ptx"
    )),
    "\0"
);

/// How many parameters the PTX declares for a kernel; `None` where it has no such kernel.
pub fn parameters(kernel: &str) -> Option<usize> {
    let (_, declaration) = PTX.split_once(&format!(".entry {kernel}("))?;
    let (parameters, _) = declaration.split_once(')')?;
    Some(parameters.matches(".param").count())
}

/// The PTX on one device. It stays there until the process ends.
#[derive(Clone, Copy)]
pub struct Module {
    pub context: Handle,
    handle: Handle,
}

impl Module {
    /// The module on `cuda:id`, loaded when first asked for.
    pub fn on(driver: &'static Driver, id: i32) -> Result<Self> {
        static MODULES: PerDevice<Module> = PerDevice::new();
        MODULES.get(id, || Self::load(driver, id))
    }

    /// The function of a kernel.
    pub fn function(&self, driver: &'static Driver, kernel: &str) -> Result<Handle> {
        let _current = Current::enter(driver, self.context)?;
        let _relaxed = Relaxed::enter(driver);
        let name = CString::new(kernel).expect("the name of a kernel has no NUL");
        let mut function = Handle(null_mut());
        // SAFETY: the module belongs to the current context, and `name` ends in NUL.
        let code =
            unsafe { (driver.cuModuleGetFunction)(&mut function, self.handle, name.as_ptr()) };
        driver.check(code, || format!("cannot load the kernel {kernel}"))?;
        Ok(function)
    }

    fn load(driver: &'static Driver, id: i32) -> Result<Self> {
        let (mut device, mut context) = (0, Handle(null_mut()));
        // SAFETY: writes one integer.
        let code = unsafe { (driver.cuDeviceGet)(&mut device, id) };
        driver.check(code, || format!("there is no device cuda:{id}"))?;
        check_capability(driver, device, id)?;
        // SAFETY: writes one handle.
        let code = unsafe { (driver.cuDevicePrimaryCtxRetain)(&mut context, device) };
        driver.check(code, || format!("cannot use cuda:{id}"))?;
        let _current = Current::enter(driver, context)?;
        let _relaxed = Relaxed::enter(driver);
        let handle = load_ptx(driver, id)?;
        Ok(Self { context, handle })
    }
}

/// Loads the PTX into the current context.
fn load_ptx(driver: &Driver, id: i32) -> Result<Handle> {
    let mut module = Handle(null_mut());
    let mut log = [0_u8; 4096];
    let options = [
        driver::CU_JIT_ERROR_LOG_BUFFER,
        driver::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    let values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
    // SAFETY: the PTX ends in NUL; the options are a buffer and its size.
    let code = unsafe {
        (driver.cuModuleLoadDataEx)(
            &mut module,
            PTX.as_ptr().cast(),
            2,
            options.as_ptr(),
            values.as_ptr(),
        )
    };
    ensure!(
        code != driver::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        RUNTIME_ERROR,
        "the NVIDIA driver (CUDA {}) is too old for the kernels (PTX {}): install a newer driver",
        driver.version(),
        directive(".version ")
    );
    driver.check(code, || {
        let log = String::from_utf8_lossy(&log);
        let log = log.trim_end_matches('\0').trim();
        format!("cannot load the kernels on cuda:{id} [{log}]")
    })?;
    Ok(module)
}

/// An error unless the device runs PTX for the target that the kernels were compiled for.
fn check_capability(driver: &Driver, device: c_int, id: i32) -> Result<()> {
    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: writes one integer.
        let code = unsafe { (driver.cuDeviceGetAttribute)(&mut value, attribute, device) };
        let done = driver.check(code, || format!("cannot ask cuda:{id} for its capability"));
        done.map(|()| value)
    };
    let major = attribute(driver::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(driver::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let target = directive(".target sm_");
    ensure!(
        runs(target, major, minor),
        RUNTIME_ERROR,
        "cuda:{id} has compute capability {major}.{minor} and cannot run kernels compiled for sm_{target}: use another \
         GPU, or change cuda-capabilities in build.toml and run `python kernels/build_ptx.py`"
    );
    Ok(())
}

/// Whether PTX for a target (`80`; `90a` and `100f` are bound to a chip and a family) runs on a device.
fn runs(target: &str, major: c_int, minor: c_int) -> bool {
    let number = target.trim_end_matches(char::is_alphabetic);
    let wanted: c_int = number.parse().unwrap_or_default();
    let given = major * 10 + minor;
    match &target[number.len()..] {
        "" => given >= wanted,
        "f" => given >= wanted && major == wanted / 10,
        _ => given == wanted,
    }
}

/// What follows a directive at the start of a line of the PTX.
fn directive(name: &str) -> &'static str {
    let value = PTX.lines().find_map(|line| line.strip_prefix(name));
    value
        .unwrap_or_default()
        .split([',', ' '])
        .next()
        .unwrap_or_default()
}

/// One `T` for each device, made when first asked for. A failure is not kept: the next call tries again.
pub struct PerDevice<T>(RwLock<Vec<Option<T>>>);

impl<T: Copy> PerDevice<T> {
    pub const fn new() -> Self {
        Self(RwLock::new(Vec::new()))
    }

    pub fn get(&self, id: i32, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let made = |values: &[Option<T>]| values.get(id as usize).copied().flatten();
        if let Some(value) = made(&self.0.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(value);
        }
        let mut values = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = made(&values) {
            return Ok(value); // Another thread was faster.
        }
        let value = make()?;
        let count = values.len().max(id as usize + 1);
        values.resize(count, None);
        values[id as usize] = Some(value);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tvm_ffi::bail;

    #[test]
    fn targets_and_devices() {
        for (target, major, minor, expected) in [
            ("80", 8, 0, true),
            ("80", 7, 5, false),
            ("80", 12, 0, true),
            ("90a", 9, 0, true),
            ("90a", 10, 0, false),
            ("100f", 10, 3, true),
            ("100f", 12, 0, false),
        ] {
            assert_eq!(
                runs(target, major, minor),
                expected,
                "sm_{target} on {major}.{minor}"
            );
        }
    }

    #[test]
    fn a_failure_is_not_kept() {
        let values = PerDevice::new();
        assert!(values.get(3, || bail!(RUNTIME_ERROR, "not yet")).is_err());
        assert_eq!(values.get(3, || Ok(7)).unwrap(), 7);
        assert_eq!(values.get(3, || unreachable!()).unwrap(), 7);
    }
}
