//! The compiled device crate, loaded once on each device that uses it.

use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::{PoisonError, RwLock};

use tvm_ffi::{DLDevice, RUNTIME_ERROR, Result, bail, ensure};

use crate::driver::{self, Current, Driver, Handle, Relaxed, driver};

/// What `build.rs` gathered of kernels-ptx/: the PTX for each target, with the NUL at its end that the driver expects.
static ALL: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));
const _: () = assert!(matches!(ALL.as_bytes(), [.., b'\0']));

/// The kernels compiled for one target.
#[derive(Clone, Copy)]
pub struct Ptx(&'static str);

impl Ptx {
    /// The most general first, the most specific last.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        ALL.split_inclusive('\0').map(Self)
    }

    /// The target, as the compiler names it: `sm_80`.
    pub fn target(self) -> &'static str {
        self.directive(".target ")
    }

    /// How many parameters are declared for a kernel; `None` where there is no such kernel.
    pub fn parameters(self, kernel: &str) -> Option<usize> {
        let (_, declaration) = self.0.split_once(&format!(".entry {kernel}("))?;
        let (parameters, _) = declaration.split_once(')')?;
        Some(parameters.matches(".param").count())
    }

    /// What follows a directive at the start of a line.
    fn directive(self, name: &str) -> &'static str {
        let value = self.0.lines().find_map(|line| line.strip_prefix(name));
        let mut words = value.unwrap_or_default().split([',', ' ']);
        words.next().unwrap_or_default()
    }

    /// Loads the kernels into the current context; `None` where the driver is too old for this version of PTX.
    fn load(self, driver: &Driver, id: i32) -> Result<Option<Handle>> {
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
                self.0.as_ptr().cast(),
                2,
                options.as_ptr(),
                values.as_ptr(),
            )
        };
        if code == driver::CUDA_ERROR_UNSUPPORTED_PTX_VERSION {
            return Ok(None);
        }
        driver.check(code, || {
            let log = String::from_utf8_lossy(&log);
            let log = log.trim_end_matches('\0').trim();
            format!("cannot load the kernels on cuda:{id} [{log}]")
        })?;
        Ok(Some(module))
    }
}

/// The target of the PTX that a device runs, `sm_80` for example, which is loaded there.
pub fn target(device: DLDevice) -> Result<&'static str> {
    Ok(Module::on(driver()?, device.device_id)?.target)
}

/// The most specific PTX that runs on a device, loaded there. It stays until the process ends.
#[derive(Clone, Copy)]
pub struct Module {
    pub context: Handle,
    target: &'static str,
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
        let candidates = candidates(driver, id)?;
        // SAFETY: writes one handle.
        let code = unsafe { (driver.cuDevicePrimaryCtxRetain)(&mut context, device) };
        driver.check(code, || format!("cannot use cuda:{id}"))?;
        let _current = Current::enter(driver, context)?;
        let _relaxed = Relaxed::enter(driver);
        for ptx in &candidates {
            if let Some(handle) = ptx.load(driver, id)? {
                let target = ptx.target();
                return Ok(Self {
                    context,
                    target,
                    handle,
                });
            }
        }
        let tried = candidates
            .iter()
            .map(|ptx| format!("PTX {} for {}", ptx.directive(".version "), ptx.target()));
        bail!(
            RUNTIME_ERROR,
            "the NVIDIA driver (CUDA {}) is too old for the kernels ({}): install a newer driver",
            driver.version(),
            tried.collect::<Vec<_>>().join(", ")
        )
    }
}

/// The PTX that a device runs, the most specific first; an error where there is none.
fn candidates(driver: &Driver, id: i32) -> Result<Vec<Ptx>> {
    let attribute = |name| attribute(driver, id, name);
    let major = attribute(driver::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(driver::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let candidates = choose(Ptx::all(), major, minor);
    ensure!(
        !candidates.is_empty(),
        RUNTIME_ERROR,
        "cuda:{id} has compute capability {major}.{minor} and cannot run kernels compiled for {}: use another GPU, or \
         change cuda-capabilities in build.toml and run `python kernels/build_ptx.py`",
        Ptx::all().map(Ptx::target).collect::<Vec<_>>().join(", ")
    );
    Ok(candidates)
}

/// The most bytes of shared memory that a block may have on a device.
pub fn shared_bytes(device: DLDevice) -> Result<u32> {
    static BYTES: PerDevice<u32> = PerDevice::new();
    let name = driver::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    let id = device.device_id;
    BYTES.get(id, || Ok(attribute(driver()?, id, name)? as u32))
}

/// Multiprocessors of a device: as many blocks run at a time, at least.
pub fn multiprocessors(device: DLDevice) -> Result<u32> {
    static COUNTS: PerDevice<u32> = PerDevice::new();
    let name = driver::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    let id = device.device_id;
    COUNTS.get(id, || Ok(attribute(driver()?, id, name)? as u32))
}

/// What a device is like, by one of the `CU_DEVICE_ATTRIBUTE` constants.
fn attribute(driver: &Driver, id: i32, name: c_int) -> Result<c_int> {
    let (mut device, mut value) = (0, 0);
    // SAFETY: each writes one integer.
    let code = unsafe {
        match (driver.cuDeviceGet)(&mut device, id) {
            0 => (driver.cuDeviceGetAttribute)(&mut value, name, device),
            code => code,
        }
    };
    driver.check(code, || {
        format!("cannot ask cuda:{id} for attribute {name}")
    })?;
    Ok(value)
}

/// Those that run on a device, in the opposite order.
fn choose(all: impl DoubleEndedIterator<Item = Ptx>, major: c_int, minor: c_int) -> Vec<Ptx> {
    all.rev()
        .filter(|ptx| runs(ptx.target(), major, minor))
        .collect()
}

/// Whether PTX for a target (`sm_80`; `sm_90a` and `sm_100f` are bound to a chip and a family) runs on a device.
fn runs(target: &str, major: c_int, minor: c_int) -> bool {
    let target = target.trim_start_matches("sm_");
    let number = target.trim_end_matches(char::is_alphabetic);
    let wanted: c_int = number.parse().unwrap_or_default();
    let given = major * 10 + minor;
    match &target[number.len()..] {
        "" => given >= wanted,
        "f" => given >= wanted && major == wanted / 10,
        _ => given == wanted,
    }
}

/// One `T` for each device, made when first asked for. A failure is not kept: the next call tries again.
pub struct PerDevice<T>(RwLock<Vec<Option<T>>>);

impl<T: Copy> PerDevice<T> {
    pub(crate) const fn new() -> Self {
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

    #[test]
    fn devices_get_the_most_specific_ptx_that_they_run() {
        let targets = ["sm_80", "sm_90a", "sm_100f", "sm_100a"];
        for (major, minor, expected) in [
            (7, 5, ""),
            (8, 0, "sm_80"),
            (8, 6, "sm_80"),
            (9, 0, "sm_90a sm_80"),
            (10, 0, "sm_100a sm_100f sm_80"),
            (10, 3, "sm_100f sm_80"),
            (12, 0, "sm_80"),
        ] {
            let all = targets.map(|target| Ptx(format!(".target {target}\n").leak()));
            let chosen = choose(all.into_iter(), major, minor);
            let chosen: Vec<_> = chosen.into_iter().map(Ptx::target).collect();
            assert_eq!(chosen.join(" "), expected, "on {major}.{minor}");
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
